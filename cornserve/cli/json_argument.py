"""JSON in an argument: as text, in a file, or from standard input."""

from __future__ import annotations

import sys
from typing import Any

from cornserve.cli.console import CliError, expanded
from cornserve_plan.bounded_file import read_bounded_bytes, read_bounded_stream

MAX_MIB = 128
"""The maximum size of JSON, twice that of a request by default."""


def read_json(argument: str, name: str) -> Any:
    """Returns the parsed JSON.

    Args:
        argument: JSON, `@FILE`, or `-` for standard input.
        name: names the JSON in errors, such as "request".
    """
    from pydantic_core import from_json

    try:
        match argument[:1]:
            case "@":
                content = read_bounded_bytes(expanded(argument[1:]), MAX_MIB)
            case "-" if argument == "-":
                content = read_bounded_stream(sys.stdin.buffer, MAX_MIB, "standard input")
            case _:
                # Python decodes command-line arguments with surrogateescape.
                content = argument.encode(errors="surrogateescape")
        return from_json(content)
    except OSError as error:
        reason = error.strerror or error
        raise CliError(f"cannot read the {name} {argument[:80]!r}: {reason}: give JSON, @FILE or -") from error
    except ValueError as error:
        raise CliError(f"the {name} is not valid JSON: {error}") from error
