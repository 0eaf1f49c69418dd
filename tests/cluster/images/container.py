"""Containers as Pod Security `restricted` and a read-only root file system allow them, on this machine with runc."""

from __future__ import annotations

import json
import shutil
import subprocess
import tarfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

UID: Final = 10001


class UnpackedImage:
    """The root file system and the configuration of an image, unpacked from an OCI archive."""

    def __init__(self, archive: Path, directory: Path) -> None:
        self.root: Final = directory / "root"
        self._blobs: Final = directory / "archive"
        with tarfile.open(archive) as opened:
            opened.extractall(self._blobs, filter="data")
        index = json.loads((self._blobs / "index.json").read_text())
        manifest = self._read(index["manifests"][0])
        self.name: Final[str] = index["manifests"][0]["annotations"]["org.opencontainers.image.ref.name"]
        self.layers: Final[list[str]] = [layer["digest"] for layer in manifest["layers"]]
        self.config: Final[dict[str, Any]] = self._read(manifest["config"])["config"]
        for layer in manifest["layers"]:
            with tarfile.open(self._path(layer)) as opened:
                opened.extractall(self.root, filter="fully_trusted")
        shutil.rmtree(self._blobs)

    @property
    def labels(self) -> dict[str, str]:
        """The labels without their common prefix."""
        return {name.removeprefix("org.opencontainers.image."): text for name, text in self.config["Labels"].items()}

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Runs a command in a new container and returns its output."""
        with self.started(*command) as process:
            output, errors = process.communicate()
        return subprocess.CompletedProcess(command, process.returncode, output, errors)

    @contextmanager
    def started(self, *command: str) -> Iterator[subprocess.Popen[str]]:
        """Starts a container with the machine's network, and kills it at the end of the block."""
        bundle = self.root.parent / uuid.uuid4().hex
        bundle.mkdir()
        subprocess.run(["runc", "spec"], cwd=bundle, check=True)
        spec = json.loads((bundle / "config.json").read_text())
        self._restrict(spec, command)
        (bundle / "config.json").write_text(json.dumps(spec))
        process = subprocess.Popen(
            ["runc", "run", "--bundle", bundle, bundle.name],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            with process:
                try:
                    yield process
                finally:
                    process.terminate() if process.poll() is None else None
        finally:
            subprocess.run(["runc", "delete", "--force", bundle.name], check=False, capture_output=True)

    def _restrict(self, spec: dict[str, Any], command: tuple[str, ...]) -> None:
        spec["root"] = {"path": str(self.root), "readonly": True}
        spec["linux"]["namespaces"] = [space for space in spec["linux"]["namespaces"] if space["type"] != "network"]
        spec["process"] |= {
            "args": list(command),
            "capabilities": {},
            "cwd": self.config["WorkingDir"],
            "env": self.config["Env"],
            "noNewPrivileges": True,
            "terminal": False,
            "user": {"uid": UID, "gid": UID},
        }
        mounts = {mount["destination"]: mount for mount in spec["mounts"]}
        mounts["/dev/shm"]["options"] = ["nosuid", "nodev", "noexec", "mode=1777"]
        spec["mounts"].append(
            {"destination": "/tmp", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "nodev", "mode=1777"]}
        )

    def _read(self, descriptor: dict[str, str]) -> dict[str, Any]:
        content: dict[str, Any] = json.loads(self._path(descriptor).read_text())
        return content

    def _path(self, descriptor: dict[str, str]) -> Path:
        return self._blobs / "blobs" / descriptor["digest"].replace(":", "/")
