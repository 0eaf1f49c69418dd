"""The result of a check of `cornserve doctor`."""

from __future__ import annotations

from typing import NamedTuple

GIB = 1024**3


class CheckResult(NamedTuple):
    name: str
    ok: bool
    found: str
    remedy: str = ""
    is_essential: bool = False
    """Whether Cornserve cannot run if the check fails."""


def format_gib(size: int) -> str:
    return f"{size / GIB:.1f} GiB"
