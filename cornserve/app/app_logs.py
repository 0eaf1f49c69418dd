"""The lines that the code of an app has written in one gateway, which gateways send each other."""

from __future__ import annotations

from typing import Final

APP_LOGS_PATH: Final = "/internal/v1/app-logs"
"""The path of the lines of one gateway, which is followed by the name of the app."""

APP_LOGS_TOKEN: Final = "app-logs"
"""The purpose of the token that the path requires: see `InstanceSecret.token`."""
