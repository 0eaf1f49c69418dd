"""Packs the check for a machine without a network: the repository, and the packages that the machine lacks.

`python -m benchmarks.gpu_check.archive FILE` packs the files of the checkout that git knows, also changed ones.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.gpu_check.versions import COMMIT, LOCK, checkout_commit

ROOT = Path(__file__).parents[2]

PACKAGES = (
    "accelerate",
    "annotated-types",
    "certifi",
    "cffi",
    "charset-normalizer",
    "diffusers",
    "idna",
    "pillow",
    "prometheus-client",
    "psutil",
    "pycparser",
    "pydantic",
    "pydantic-core",
    "python-json-logger",
    "requests",
    "soundfile",
    "typing-extensions",
    "typing-inspection",
    "urllib3",
    "uvloop",
)
"""The packages of the check that do not come with torch, transformers, grpcio, protobuf and numpy."""

SITE_PACKAGES = ".gpu-check-packages"
"""The directory of the packages, to which `scripts/gpu_check` adds a path if it exists."""

TOP = "cornserve"
"""The only directory at the top of the archive."""

LIMIT_MIB = 60


class ArchiveError(Exception):
    """The archive cannot be packed."""


def pack(file: Path, python: str) -> int:
    """Writes the archive, and returns its size in bytes.

    Args:
        python: the version of Python on the other machine, such as "3.12".

    Raises:
        ArchiveError: a package cannot be downloaded, or the archive is larger than `LIMIT_MIB`.
    """
    with tempfile.TemporaryDirectory() as name:
        packages = Path(name) / SITE_PACKAGES
        _install(packages, python)
        commit = Path(name) / COMMIT.name
        commit.write_text(checkout_commit())
        partial = file.with_name(f"{file.name}.partial")
        with tarfile.open(partial, "w:gz", compresslevel=6) as archive:
            for path in _repository_files():
                archive.add(ROOT / path, f"{TOP}/{path}")
            archive.add(packages, f"{TOP}/{SITE_PACKAGES}")
            archive.add(commit, f"{TOP}/{COMMIT.name}")
    size = partial.stat().st_size
    if size > LIMIT_MIB << 20:
        partial.unlink()
        raise ArchiveError(f"the archive has {size / 2**20:.1f} MiB, but at most {LIMIT_MIB} MiB are allowed")
    partial.replace(file)
    return size


def _install(target: Path, python: str) -> None:
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as requirements:
        requirements.write(locked_requirements(PACKAGES))
        requirements.flush()
        command = [
            *(os.fspath(Path(sys.executable).with_name("uv")), "pip", "install", "--quiet"),
            *("--target", os.fspath(target)),
            *("--python-version", python, "--python-platform", "x86_64-manylinux_2_28", "--only-binary", ":all:"),
            *("--no-deps", "--require-hashes", "--requirements", requirements.name),
        ]
        if subprocess.run(command, check=False).returncode:
            raise ArchiveError("a package cannot be installed: see the error of uv above")


def locked_requirements(names: Sequence[str]) -> str:
    """Returns the lines of the lock for packages, with their hashes. Raises `ArchiveError` for an unknown one."""
    blocks = re.split(r"\n(?=[a-z])", LOCK.read_text())
    found = {block.partition("==")[0]: block for block in blocks}
    missing = [name for name in names if name not in found]
    if missing:
        raise ArchiveError(f"{LOCK.name} has no version of {', '.join(missing)}")
    return "\n".join(found[name] for name in names)


def _repository_files() -> list[str]:
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [path for path in listed.split("\0") if path and (ROOT / path).is_file()]


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/gpu_check pack")
    parser.add_argument("file", type=Path, nargs="?", default=Path("gpu-check.tar.gz"), help="the archive")
    parser.add_argument("--python", default="3.12", help="the version of Python on the other machine (%(default)s)")
    arguments = parser.parse_args()
    try:
        size = pack(arguments.file, arguments.python)
    except (ArchiveError, OSError, subprocess.CalledProcessError) as error:
        print(f"gpu_check: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("gpu_check: interrupted", file=sys.stderr)
        return 130
    print(f"{arguments.file}: {size / 2**20:.1f} MiB. On the machine with the GPU, run:")
    print(f"tar xf {arguments.file.name} && {TOP}/scripts/gpu_check")
    return 0


if __name__ == "__main__":
    sys.exit(main())
