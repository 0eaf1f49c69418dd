"""Imports traces of other systems as requests: CSV, JSON lines, or the results of a benchmark of vLLM."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from itertools import chain
from math import nan
from pathlib import Path
from typing import Any, Final, NamedTuple

from pydantic import ValidationError

from cornserve_planner.errors import InvalidInputError
from cornserve_planner.files.bounded_text import bounded_lines, read_document
from cornserve_planner.files.document import input_error_from, parse_whole
from cornserve_planner.requests.request import WorkloadRequest


class TraceColumns(NamedTuple):
    """The names of a trace's columns, or of the fields of its rows.

    Args:
        arrival: a number, or a date and time [ISO 8601].
        per_second: the unit of arrivals: 1 for seconds, 1000 for milliseconds.
    """

    arrival: str
    text_tokens: str
    output_tokens: str
    per_second: float = 1.0


TRACES: Final = {
    "azure": TraceColumns("TIMESTAMP", "ContextTokens", "GeneratedTokens"),
    "mooncake": TraceColumns("timestamp", "input_length", "output_length", per_second=1000),
    "burstgpt": TraceColumns("Timestamp", "Request tokens", "Response tokens"),
    "vllm": TraceColumns("start_times", "input_lens", "output_lens"),
}
"""Known traces: those of Azure's LLM inference, Mooncake and BurstGPT, and results of `vllm bench serve
--save-detailed`."""

SEPARATORS: Final = ",;\t"
"""Characters that separate the cells of a CSV file."""


def import_trace(
    path: Path, columns: TraceColumns, on_failed: Callable[[int], object] = lambda count: None
) -> Iterator[WorkloadRequest]:
    """Yields the requests of a trace, whose first one arrives at 0.

    Args:
        on_failed: called with the number of failed requests in the results of a benchmark, which are left out.

    Raises `InvalidInputError`, naming file and line, if the trace cannot be read, is empty or is not sorted by arrival.
    """
    first = last = None
    for place, row in _rows(path, columns, on_failed):
        arrival = _arrival(row, columns, place)
        first = arrival if first is None else first
        if last is not None and arrival < last:
            raise InvalidInputError(f"{place}: {columns.arrival}", "is before the previous one: sort the rows by it")
        last = arrival
        try:
            yield WorkloadRequest(
                arrival=(arrival - first) / columns.per_second,
                text_tokens=_whole(row, columns.text_tokens, place),
                output_tokens=_whole(row, columns.output_tokens, place),
            )
        except ValidationError as error:
            raise input_error_from(error, "a request").within(place) from error
    if first is None:
        raise InvalidInputError(path.name, "contains no requests: give a trace with at least one")


def _rows(
    path: Path, columns: TraceColumns, on_failed: Callable[[int], object]
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yields the rows of a file with their places."""
    if path.suffix == ".json":
        yield from _result_rows(path, columns, on_failed)
        return
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            lines = bounded_lines(file, path.name)
            if path.suffix == ".csv":
                yield from _csv_rows(lines, path.name, columns)
            else:
                for number, line in enumerate(lines, 1):
                    if line.strip():
                        place = f"{path.name} line {number}"
                        yield place, _json_row(line, place)
    except OSError as error:
        raise InvalidInputError(str(path), f"cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InvalidInputError(path.name, "is not UTF-8 text: save it as UTF-8") from error
    except csv.Error as error:
        raise InvalidInputError(path.name, f"is not valid CSV: {error}") from error


def _csv_rows(lines: Iterator[str], name: str, columns: TraceColumns) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yields the rows of a CSV file, whose separator is the most frequent one of its first line."""
    first = next(lines, "")
    reader = csv.DictReader(chain([first], lines), delimiter=max(SEPARATORS, key=first.count))
    header = dict.fromkeys(reader.fieldnames or (), "")
    for column in columns[:3] if first else ():
        _cell(header, column, f"{name} line 1")
    for row in reader:
        yield f"{name} line {reader.line_num}", row


def _result_rows(
    path: Path, columns: TraceColumns, on_failed: Callable[[int], object]
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yields the rows of a JSON object with an array for each column, in order of arrival.

    Rows with a text in the array `errors`, which a benchmark of vLLM writes, are left out.
    """
    result = _json_row(read_document(path), path.name)
    names = [*columns[:3], *(["errors"] if "errors" in result else [])]
    arrays = [result.get(name) for name in names]
    if not all(isinstance(array, list) for array in arrays) or len({len(array or ()) for array in arrays}) != 1:
        raise InvalidInputError(
            path.name, f"needs arrays {', '.join(names)} of one length: run `vllm bench serve` with --save-detailed"
        )
    rows = [dict(zip(names, values, strict=True)) for values in zip(*map(list, filter(None, arrays)), strict=True)]
    served = [row for row in rows if not row.get("errors")]
    if len(served) < len(rows):
        on_failed(len(rows) - len(served))
    for number, row in enumerate(sorted(served, key=lambda row: _arrival(row, columns, path.name))):
        yield f"{path.name} request {number}", row


def _json_row(text: str, place: str) -> Mapping[str, Any]:
    try:
        row = json.loads(text, parse_int=parse_whole)
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(place, f"is not valid JSON: {error}") from error
    if not isinstance(row, dict):
        raise InvalidInputError(place, "must be a JSON object")
    return row


def _cell(row: Mapping[str, Any], name: str, place: str) -> Any:
    if (cell := row.get(name)) is None:
        known = ", ".join(map(str, row))
        raise InvalidInputError(f"{place}: {name}", f"is missing: name the columns of the trace ({known})")
    return cell


def _arrival(row: Mapping[str, Any], columns: TraceColumns, place: str) -> float:
    cell = _cell(row, columns.arrival, place)
    try:
        return float(cell)
    except (OverflowError, TypeError, ValueError):
        pass
    try:
        time = datetime.fromisoformat(str(cell))
    except ValueError:
        raise InvalidInputError(
            f"{place}: {columns.arrival}", f"{str(cell)[:40]!r} is neither a number nor a date and time"
        ) from None
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * columns.per_second


def _whole(row: Mapping[str, Any], name: str, place: str) -> int:
    cell = _cell(row, name, place)
    try:
        number = float(cell)
    except (OverflowError, TypeError, ValueError):
        number = nan
    if not number.is_integer():
        raise InvalidInputError(f"{place}: {name}", f"{str(cell)[:40]!r} is not a whole number")
    return int(number)
