"""`cornserve demo` opens its page in a graphical session."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

ADDRESS = "http://127.0.0.1:8000/console/#/demo"


@pytest.mark.parametrize(
    ("display", "opened"), [({"DISPLAY": ":0"}, True), ({"WAYLAND_DISPLAY": "w"}, True), ({}, False)]
)
def test_the_page_opens_in_a_graphical_session(tmp_path: Path, display: dict[str, str], opened: bool) -> None:
    file, browser = tmp_path / "opened", tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\nprintf %s "$1" > {file}\n')
    browser.chmod(0o700)
    terminal, own = pty.openpty()
    code = f"from cornserve.cli.demo import open_in_session; open_in_session({ADDRESS!r})"
    environment = {"PATH": os.environ["PATH"], "BROWSER": f"{browser} %s", **display}
    try:
        subprocess.run([sys.executable, "-c", code], env=environment, stdout=own, check=True)
    finally:
        os.close(terminal)
        os.close(own)

    assert (file.read_text() if file.exists() else None) == (ADDRESS if opened else None)
