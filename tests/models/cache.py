"""A cache of models for tests, in the user's cache directory. All test runs share it."""

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
    """Returns a model directory that `script DIRECTORY` has created. Waits while another process creates it.

    The directory is created again if the script or one of the files in `imported` changes.
    """
    cache = Path(os.environ.get("CORNSERVE_TEST_MODELS") or platformdirs.user_cache_path("cornserve-tests"))
    cache.mkdir(parents=True, exist_ok=True)
    sources = b"".join(file.read_bytes() for file in (script, *imported))
    model = cache / f"{script.stem}-{hashlib.sha256(sources).hexdigest()[:8]}"
    with (cache / f"{model.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not model.is_dir():
            partial = cache / f"{model.name}.partial"
            shutil.rmtree(partial, ignore_errors=True)
            subprocess.run([sys.executable, script, partial], check=True)
            partial.rename(model)
    return model
