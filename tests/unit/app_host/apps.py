"""Sources of apps for the tests of app hosts."""

from __future__ import annotations

from pathlib import Path
from tempfile import gettempdir

TEST_FILES = [gettempdir()]
"""The paths that the apps of tests may use: those of the fixture `tmp_path`."""

CATASTROPHIC_REGEX = "import re\nre.match('(a+)+$', 40 * 'a' + 'b')"
C_CALL_WITH_LOCK = "import ctypes\nctypes.PyDLL(None).usleep(60_000_000)"
CRASH = "import ctypes\nctypes.string_at(0)"
ONE_GIB = "data = bytearray(1 << 30)"
ENDLESS_LOOP = "def wait():\n    while True: pass\nwait()"
SLEEP = "import time\ntime.sleep(60)"
"""Offences. Each one is on line 2, except `ONE_GIB`."""


def announced(offence: str, file: Path) -> str:
    """Returns code that creates the file immediately before the offence, which is on line 3."""
    first, line, *others = offence.split("\n")
    indent = line[: len(line) - len(line.lstrip())]
    return "\n".join([first, f"{indent}open({str(file)!r}, 'w').close()", line, *others])


MANY_THREADS = """from threading import Event, Thread
for _ in range(10_000): Thread(target=Event().wait, daemon=True).start()"""
