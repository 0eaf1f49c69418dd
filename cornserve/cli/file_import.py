"""Imports the Python files of apps in child processes, because they may hang, exit or crash."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from cornserve.cli.console import CliError, stderr

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

T = TypeVar("T")

NOTICE_SECONDS = 1.0
"""A slower import is reported to standard error."""


def run_import(target: object, function: Callable[[], T], seconds: float | None = None) -> T:
    """Returns what `function` returns, which imports the file `target`. Raises `CliError` with its error.

    For a target that is not a Python file, it runs in this process, without a limit.

    Args:
        seconds: the time limit. By default, no limit.
    """
    if not str(target).endswith(".py"):
        return function()
    name, limit = Path(str(target)).name, float("inf") if seconds is None else max(0.0, seconds)
    context = get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_send_outcome, args=(sender, function))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*is multi-threaded", DeprecationWarning)  # in processes that embed the CLI
        child.start()
    sender.close()
    try:
        if limit > NOTICE_SECONDS and not receiver.poll(NOTICE_SECONDS):
            stderr().print(f"importing {name} …")
            limit -= NOTICE_SECONDS
        if not receiver.poll(None if seconds is None else limit):
            raise CliError(f"the import of {name} takes longer than {seconds:g} s: give a longer --timeout")
        outcome = receiver.recv()
    except EOFError:
        child.join()
        raise CliError(f"the import of {name} ends its process: {_describe_exit(child.exitcode)}") from None
    finally:
        receiver.close()
        child.kill()
        child.join()
    if isinstance(outcome, CliError):
        raise outcome
    result: T = outcome
    return result


def _send_outcome(sender: Connection, function: Callable[[], object]) -> None:
    from cornserve.client import ClientError
    from cornserve.task.errors import DefinitionError

    try:
        sender.send(function())
    except (CliError, ClientError, DefinitionError) as error:
        sender.send(CliError(str(error)))


def _describe_exit(code: int | None) -> str:
    from signal import Signals

    if code is not None and code < 0:
        return f"signal {Signals(-code).name}"
    return f"exit status {code}: remove the call that exits, such as os._exit"
