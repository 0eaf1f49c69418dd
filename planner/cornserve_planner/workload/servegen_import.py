"""Imports the published client profiles of ServeGen: `chunk-N-trace.csv` and `chunk-N-dataset.json`.

The first file has a row for every ten minutes: start, requests/s, coefficient of variation, family, and the parameters
of the family. The second one has, for each window of six hours, the shares of the values of each field, as the text of
a Python mapping. `data/multimodal/mm-image` of https://github.com/alibaba/ServeGen contains such files.
"""

from __future__ import annotations

import ast
import csv
import json
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from cornserve_planner.errors import InvalidInputError
from cornserve_planner.files.bounded_text import read_document
from cornserve_planner.files.document import input_error_from, parse_whole
from cornserve_planner.workload.clients import ClientPool, ClientProfile, SizeDistributions

STEP_SECONDS = 600.0
WINDOW_SECONDS = 21_600.0
MOST_CLIENTS = 1024

_FAMILIES: Final = {"Gamma": "g", "Weibull": "w", "": "-"}
_FIELDS: Final = {
    "text": "text_tokens",
    "images": "image_count",
    "image_tokens": "image_tokens",
    "output": "output_tokens",
}
_NO_MEDIA: Final = "{0: 1.0}"


def read_clients(directory: Path) -> ClientPool:
    """Returns the clients of a directory. Raises `InvalidInputError` naming the file, the field and the reason."""
    traces = sorted(directory.glob("chunk-*-trace.csv"), key=lambda path: (len(path.name), path.name))
    if not traces:
        raise InvalidInputError(str(directory), "has no chunk-N-trace.csv: give a directory of ServeGen's data")
    if len(traces) > MOST_CLIENTS:
        raise InvalidInputError(str(directory), f"has {len(traces)} clients: at most {MOST_CLIENTS} are read")
    return ClientPool(
        source=f"ServeGen, {directory.name}",
        licence="Apache-2.0",
        step_seconds=STEP_SECONDS,
        window_seconds=WINDOW_SECONDS,
        clients=tuple(_client(trace) for trace in traces),
    )


def _client(trace: Path) -> ClientProfile:
    rates, cvs, families = _rates(trace)
    dataset = trace.with_name(trace.name.replace("-trace.csv", "-dataset.json"))
    try:
        windows = json.loads(read_document(dataset), parse_int=parse_whole)
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(dataset.name, f"is not valid JSON: {error}") from error
    if not isinstance(windows, dict) or not all(start.isdecimal() for start in windows):
        raise InvalidInputError(dataset.name, "must be an object with the start of each window in seconds")
    try:
        return ClientProfile(
            name=trace.name.removesuffix("-trace.csv"),
            rates=rates,
            cvs=cvs,
            families=families,
            windows=tuple(
                SizeDistributions.model_validate(
                    {name: _distribution(windows[start], field, dataset.name) for name, field in _FIELDS.items()}
                )
                for start in sorted(windows, key=int)
            ),
        )
    except ValidationError as error:
        raise input_error_from(error, "ServeGen's data").within(trace.name) from error


def _rates(trace: Path) -> tuple[tuple[float, ...], tuple[float, ...], str]:
    """Returns the rates, the coefficients of variation and the families of a client over the day."""
    rates, cvs, families = [], [], []
    for number, row in enumerate(csv.reader(read_document(trace).splitlines()), 1):
        try:
            _, rate, cv, family = row[:4]
            rates.append(float(rate))
            cvs.append(float(cv or 0))
            families.append(_FAMILIES[family])
        except (KeyError, ValueError):
            raise InvalidInputError(
                f"{trace.name} line {number}", "must be: start, requests/s, cv, Gamma or Weibull, parameters"
            ) from None
    return tuple(rates), tuple(cvs), "".join(families)


def _distribution(window: Any, field: str, name: str) -> dict[str, Any]:
    text = window.get(field, _NO_MEDIA if field.startswith("image") else None) if isinstance(window, dict) else None
    try:
        shares = ast.literal_eval(text) if isinstance(text, str) else None
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        shares = None
    if not isinstance(shares, dict) or not shares:
        raise InvalidInputError(f"{name}: {field}", "must be the text of a mapping of values to shares")
    return {"values": tuple(map(_number, shares)), "weights": tuple(map(_number, shares.values()))}


def _number(value: object) -> object:
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value
