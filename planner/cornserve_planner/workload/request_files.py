"""Files of requests in JSON lines or CSV. docs/reference/workloads.md describes both formats.

The first line contains the format and the version. Files of other versions are rejected.
"""

from __future__ import annotations

import csv
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from cornserve_planner.errors import InvalidInputError
from cornserve_planner.files.bounded_text import bounded_lines
from cornserve_planner.files.document import FAMILY, Document, input_error_from, reject_duplicates
from cornserve_planner.requests.request import WorkloadRequest
from cornserve_planner.workload.csv_media import format_media, parse_media

_MEDIA = ("images", "videos", "audios", "output_images")
_LISTS = ("output_modalities", "after")
_WHOLE = ("text_tokens", "output_tokens", "seed")
_REAL = ("arrival", "output_audio_seconds", "delay")

ParsedRequest = WorkloadRequest | InvalidInputError


class RequestFileHeader(Document):
    """`format: cornserve-planner/requests`, the first line of a file of requests."""

    kind = "requests"


def request_lines_schema() -> dict[str, Any]:
    """Returns the JSON schema of a line of a `.jsonl` file: the header in the first line, then a request in each.

    Reading checks more: the order of arrivals, and that `after` names earlier requests.
    """
    request = WorkloadRequest.model_json_schema(ref_template="#/$defs/{model}")
    parts = request.pop("$defs")
    header = {
        "type": "object",
        "title": "RequestFileHeader",
        "properties": {
            "format": {"const": f"{FAMILY}/{RequestFileHeader.kind}"},
            "version": {"const": RequestFileHeader.version},
        },
        "required": ["format", "version"],
        "additionalProperties": False,
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Line of a file of requests",
        "oneOf": [{"$ref": "#/$defs/RequestFileHeader"}, {"$ref": "#/$defs/WorkloadRequest"}],
        "$defs": {"RequestFileHeader": header, "WorkloadRequest": request, **parts},
    }


def read_requests(path: Path) -> Iterator[WorkloadRequest]:
    """Yields the requests in order of arrival. Raises `InvalidInputError` naming file, line, field and reason."""
    for parsed in _parse_file(path):
        if isinstance(parsed, InvalidInputError):
            raise parsed
        yield parsed


def check_requests(
    path: Path, most: int = 100, on_request: Callable[[WorkloadRequest], object] = lambda request: None
) -> list[InvalidInputError]:
    """Returns the errors in a file, at most `most`.

    Args:
        on_request: called with each valid request before the last error that is returned.
    """
    try:
        return list(islice(_errors(path, on_request), most))
    except InvalidInputError as error:
        return [error]


def _errors(path: Path, on_request: Callable[[WorkloadRequest], object]) -> Iterator[InvalidInputError]:
    for parsed in _parse_file(path):
        if isinstance(parsed, InvalidInputError):
            yield parsed
        else:
            on_request(parsed)


def write_requests(path: Path, requests: Iterable[WorkloadRequest]) -> None:
    """Writes a file, or none if an error is raised: the requests may be read from the file that it replaces.

    Raises `InvalidInputError` if writing fails, or if the file is neither `.jsonl` nor `.csv`.
    """
    write_to = {".jsonl": _write_json_lines, ".csv": _write_csv}.get(path.suffix)
    if write_to is None:
        raise _unknown(path)
    target = Path(os.path.realpath(path))
    part = target.with_name(f".{target.stem[:50]}.{os.getpid()}{path.suffix}")
    try:
        try:
            write_to(part, requests)
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise InvalidInputError(str(path), f"cannot be written: {error.strerror}") from error


def _parse_file(path: Path) -> Iterator[ParsedRequest]:
    """Yields requests and errors. Raises `InvalidInputError` if the rest of the file cannot be read."""
    lines = {".jsonl": _parse_json_lines, ".csv": _parse_csv}.get(path.suffix)
    if lines is None:
        raise _unknown(path)
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            yield from _with_location(path.name, lines(bounded_lines(file, path.name), path.name))
    except OSError as error:
        raise InvalidInputError(str(path), f"cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InvalidInputError(path.name, "is not UTF-8 text: save it as UTF-8") from error
    except csv.Error as error:
        raise InvalidInputError(path.name, f"is not valid CSV: {error}") from error


def _with_location(name: str, requests: Iterable[tuple[int, ParsedRequest]]) -> Iterator[ParsedRequest]:
    last = 0.0
    known: set[str] = set()
    for line, parsed in requests:
        if isinstance(parsed, InvalidInputError):
            yield parsed.within(f"{name} line {line}")
        elif parsed.arrival < last:
            reason = f"is {parsed.arrival:g} s, before the previous request ({last:g} s): sort the requests by arrival"
            yield InvalidInputError(f"{name} line {line}: arrival", reason)
        elif parsed.id in known:
            yield InvalidInputError(f"{name} line {line}: id", f"{parsed.id!r} is the id of an earlier request")
        elif unknown := [each for each in parsed.after if each not in known]:
            yield InvalidInputError(f"{name} line {line}: after", f"{unknown[0]!r} is not the id of an earlier request")
        else:
            last = parsed.arrival
            if parsed.id is not None:
                known.add(parsed.id)
            yield parsed


def _parse_json_lines(file: Iterable[str], name: str) -> Iterator[tuple[int, ParsedRequest]]:
    lines = iter(file)
    RequestFileHeader.parse(next(lines, ""), f"{name} line 1")
    for number, line in enumerate(lines, 2):
        if line.strip():
            yield number, _duplicate_field_error(line) or _request(line)


def _duplicate_field_error(line: str) -> InvalidInputError | None:
    try:
        json.loads(line, object_pairs_hook=reject_duplicates)
    except InvalidInputError as error:
        return error
    except (ValueError, RecursionError):  # invalid JSON, which `_request` reports
        pass
    return None


def _parse_csv(file: Iterable[str], name: str) -> Iterator[tuple[int, ParsedRequest]]:
    lines = iter(file)
    first = next(lines, "").strip()
    RequestFileHeader.parse(f"{{{first.removeprefix('#')}}}" if first.startswith("#") else first, f"{name} line 1")
    rows = csv.DictReader(lines)
    for unknown in set(rows.fieldnames or ()) - set(WorkloadRequest.model_fields):
        raise InvalidInputError(
            f"{name} line 2: {unknown}", f"is not a field of {FAMILY}/requests: remove it or correct its name"
        )
    for duplicate, count in Counter(rows.fieldnames).items():
        if count > 1:
            raise InvalidInputError(f"{name} line 2: {duplicate}", "is given twice: remove one of the columns")
    for row in rows:
        try:
            parsed: ParsedRequest = _request(json.dumps(_fields(row)))
        except InvalidInputError as error:
            parsed = error
        yield rows.line_num + 1, parsed


def _request(line: str) -> ParsedRequest:
    try:
        return WorkloadRequest.model_validate_json(line)
    except ValidationError as error:
        return input_error_from(error, f"{FAMILY}/requests")


def _fields(row: dict[str | None, Any]) -> dict[str, object]:
    fields: dict[str, object] = {}
    for name, cell in row.items():
        if name is None or cell is None:
            raise InvalidInputError(
                "line", "the number of cells differs from the number of columns: write one cell for each column"
            )
        if cell.strip():
            try:
                fields[name] = _value(name, cell.strip())
            except InvalidInputError as error:
                raise error.within(name) from error
    return fields


def _value(name: str, cell: str) -> object:
    try:
        if name in _WHOLE:
            return int(cell)
        if name in _REAL:
            return float(cell)
    except ValueError:
        raise InvalidInputError(cell, f"must be a {'whole ' if name in _WHOLE else ''}number") from None
    if name in _MEDIA:
        return parse_media(cell)
    return [item.strip() for item in cell.split(";")] if name in _LISTS else cell


def _write_json_lines(path: Path, requests: Iterable[WorkloadRequest]) -> None:
    with path.open("w", encoding="utf-8") as file:
        print(json.dumps({"format": f"{FAMILY}/requests", "version": RequestFileHeader.version}), file=file)
        for request in requests:
            print(request.model_dump_json(exclude_defaults=True), file=file)


def _write_csv(path: Path, requests: Iterable[WorkloadRequest]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        print(f"# format: {FAMILY}/requests, version: {RequestFileHeader.version}", file=file)
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(WorkloadRequest.model_fields)
        for request in requests:
            rows.writerow([_cell(name, getattr(request, name)) for name in WorkloadRequest.model_fields])


def _cell(name: str, value: Any) -> object:
    if name in _MEDIA:
        return format_media(value)
    return ";".join(value) if name in _LISTS else value


def _unknown(path: Path) -> InvalidInputError:
    return InvalidInputError(str(path), f"must be a .jsonl or a .csv file, not {path.suffix or path.name!r}")
