"""The figures of one gateway, which gateways send each other."""

from __future__ import annotations

from typing import Final

LIVE_PATH: Final = "/internal/v1/live"
"""The path of the figures of one gateway."""

LIVE_TOKEN: Final = "live"
"""The purpose of the token that the path requires: see `InstanceSecret.token`."""
