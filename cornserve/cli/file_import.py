"""Imports the Python files of apps in child processes, because they may hang, exit or crash."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path
from signal import SIGKILL, Signals
from typing import TYPE_CHECKING, TypeVar

from cornserve.cli.console import CliError, stderr

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from cornserve.client.deadline import Deadline

T = TypeVar("T")

NOTICE_SECONDS = 1.0
"""A slower import is reported to standard error."""


def run_import(target: object, function: Callable[[], T], deadline: Deadline | None = None) -> T:
    """Returns what `function` returns, which imports the file `target`. Raises `CliError` with its error.

    For a target that is not a Python file, it runs in this process, without a limit.

    Args:
        deadline: the limit of the command. By default, no limit.
    """
    if not str(target).endswith(".py"):
        return function()
    from multiprocessing.connection import wait

    name = Path(str(target)).name
    context = get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_send_outcome, args=(sender, function, name, os.getpid()))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*is multi-threaded", DeprecationWarning)  # in processes that embed the CLI
        child.start()
    sender.close()
    assert child.pid is not None
    exited = os.pidfd_open(child.pid)
    try:
        if (deadline is None or deadline.left > NOTICE_SECONDS) and not wait([receiver, exited], NOTICE_SECONDS):
            stderr().print(f"importing {name} …", markup=False)
        if not wait([receiver, exited], None if deadline is None else deadline.limit):
            assert deadline is not None
            raise CliError(f"the import of {name} has not ended after {deadline.seconds:g} s: give a longer --timeout")
        if not receiver.poll():  # Processes that the file has forked keep the pipe open.
            raise EOFError
        outcome = receiver.recv()
    except EOFError:
        child.join()
        raise CliError(f"the import of {name} ends its process: {_describe_exit(child.exitcode)}") from None
    finally:
        child.kill()
        child.join()
        receiver.close()
        os.close(exited)
    if isinstance(outcome, CliError):
        raise outcome
    result: T = outcome
    return result


def _send_outcome(sender: Connection, function: Callable[[], object], name: str, parent: int) -> None:
    """Runs in the child process, which ends together with its parent. Its prints go to standard error."""
    from cornserve.client import ClientError
    from cornserve.exception_text import exception_text
    from cornserve.parent_death import signal_on_parent_death
    from cornserve.task.errors import DefinitionError

    signal_on_parent_death(SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    os.dup2(2, 1)
    outcome: object
    try:
        outcome = function()
    except (CliError, ClientError, DefinitionError) as error:
        outcome = CliError(str(error))
    except BaseException as error:
        outcome = CliError(f"the import of {name} fails: {exception_text(error)}")
    sys.stdout.flush()
    sender.send(outcome)


def _describe_exit(code: int | None) -> str:
    if code is not None and code < 0:
        return f"signal {Signals(-code).name}"
    return f"exit status {code}: remove the call that exits, such as os._exit"
