"""JSON in an argument: as text, in a file, or from standard input."""

from __future__ import annotations

import sys
from typing import Any

from cornserve.cli.console import CliError, expanded
from cornserve_plan.bounded_file import read_bounded

MAX_MIB = 512
"""The maximum size of a file with JSON."""


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
                text = read_bounded(expanded(argument[1:]), MAX_MIB)
            case "-" if argument == "-":
                text = sys.stdin.read()
            case _:
                text = argument
        return from_json(
            text.encode(errors="surrogateescape")
        )  # Python decodes command-line arguments with surrogateescape.
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise CliError(f"cannot read the {name} {argument[:80]!r}: {reason}: give JSON, @FILE or -") from error
    except ValueError as error:
        raise CliError(f"the {name} is not valid JSON: {error}") from error
