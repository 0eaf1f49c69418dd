"""Reports what a command waits for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Timer

from cornserve.cli.console import stderr

SECONDS = 1.0


@contextmanager
def importing(target: object) -> Iterator[None]:
    """Prints the name of a file to standard error if its import takes longer than `SECONDS`."""
    if not str(target).endswith(".py"):
        yield
        return
    timer = Timer(SECONDS, lambda: stderr().print(f"importing {Path(str(target)).name} …"))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
