"""Media in one cell of a CSV file: `1920x1080;650t` contains two images, `12.5s:640x360:25f` contains a video."""

from __future__ import annotations

import re
from collections.abc import Sequence

from cornserve_planner.errors import InvalidInputError
from cornserve_planner.requests.request import WorkloadAudio, WorkloadImage, WorkloadVideo

_SIDES = re.compile(r"(\d{1,9})x(\d{1,9})")
_AMOUNT = re.compile(r"(\d+(?:\.\d*)?(?:e[-+]?\d+)?)([stf])")
_UNITS = {"s": "seconds", "t": "tokens", "f": "frames"}

Medium = dict[str, int | float]


def parse_media(cell: str) -> list[Medium]:
    return [_medium(text.strip()) for text in cell.split(";")] if cell.strip() else []


def format_media(media: Sequence[WorkloadImage | WorkloadVideo | WorkloadAudio]) -> str:
    return ";".join(_written(medium.model_dump(exclude_none=True)) for medium in media)


def _medium(text: str) -> Medium:
    found: Medium = {}
    for part in text.split(":"):
        if sides := _SIDES.fullmatch(part):
            fields: Medium = {"width": int(sides[1]), "height": int(sides[2])}
        elif amount := _AMOUNT.fullmatch(part):
            number = float(amount[1])
            fields = {_UNITS[amount[2]]: int(number) if number.is_integer() else number}
        else:
            raise InvalidInputError(
                text[:80] or "''",
                "must consist of parts such as 1920x1080 (pixels), 650t (tokens), 8s (seconds), 25f (frames)",
            )
        if repeated := found.keys() & fields.keys():
            raise InvalidInputError(text, f"has {min(repeated)} twice")
        found |= fields
    return found


def _written(medium: Medium) -> str:
    sides = [f"{medium['width']}x{medium['height']}"] if "width" in medium else []
    amounts = [f"{medium[name]}{unit}" for unit, name in _UNITS.items() if name in medium]
    return ":".join([*sides, *amounts])
