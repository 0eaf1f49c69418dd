"""Models that tests make once and keep: one directory of the user's cache, shared by all test runs."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import platformdirs


def cached_model(script: Path, *imported: Path) -> Path:
    """The directory that `script DIRECTORY` makes. Whoever comes while it is being made waits.

    Another is made when the script changes, or a file that it imports.
    """
    folder = Path(os.environ.get("CORNSERVE_TEST_MODELS") or platformdirs.user_cache_path("cornserve-tests"))
    folder.mkdir(parents=True, exist_ok=True)
    sources = b"".join(file.read_bytes() for file in (script, *imported))
    model = folder / f"{script.stem}-{hashlib.sha256(sources).hexdigest()[:8]}"
    with (folder / f"{model.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not model.is_dir():
            partial = folder / f"{model.name}.partial"
            shutil.rmtree(partial, ignore_errors=True)
            subprocess.run([sys.executable, script, partial], check=True)
            partial.rename(model)
    return model
