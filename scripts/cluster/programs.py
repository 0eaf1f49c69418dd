"""Builds the programs of Kubernetes from Go modules, once for all checkouts of a user.

`python -m scripts.cluster.programs [BUILD]...` builds all or the named ones and links them into
`.cache/kubernetes/bin`.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import platformdirs

ROOT: Final = Path(__file__).parents[2]
SOURCES: Final = ROOT / "kubernetes" / "cluster"
LINKS: Final = ROOT / ".cache" / "kubernetes" / "bin"
"""Links to the programs, for people."""

KUBERNETES_VERSION: Final = "1.36.3"


class ProgramMissingError(Exception):
    """A program is not built yet, or cannot be built."""


@dataclass(frozen=True)
class GoBuild:
    """A build of one executable file."""

    name: str
    programs: tuple[str, ...]
    """The names that the file is called by."""
    module: str = ""
    """The published package with its version; "" for the module in `SOURCES / name`."""
    ldflags: str = "-s -w"

    @property
    def directory(self) -> Path:
        """The directory of the programs. A change of the sources or of the options gives another one."""
        digest = hashlib.sha256(f"{self.module} {self.ldflags}".encode())
        for file in () if self.module else sorted((SOURCES / self.name).iterdir()):
            digest.update(file.read_bytes())
        return (
            Path(platformdirs.user_cache_path("cornserve-tests"))
            / "kubernetes"
            / f"{self.name}-{digest.hexdigest()[:12]}"
        )

    def build(self) -> None:
        """Builds the programs unless they are there. Waits while another process builds them.

        Raises:
            ProgramMissingError: Go is missing, or it fails.
        """
        directory = self.directory
        directory.parent.mkdir(parents=True, exist_ok=True)
        with directory.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not directory.is_dir():
                partial = directory.with_suffix(".partial")
                shutil.rmtree(partial, ignore_errors=True)
                partial.mkdir()
                self._compile(partial)
                for program in self.programs:
                    if program != self.name:
                        (partial / program).symlink_to(self.name)
                partial.rename(directory)

    def _compile(self, directory: Path) -> None:
        if not go_is_installed():
            raise ProgramMissingError(
                f"cannot build {self.name}: Go is missing. Install Go 1.26 or later (https://go.dev/dl/)."
            )
        print(f"Building {self.name} with Go (minutes, unless Go's cache has it)", file=sys.stderr, flush=True)
        command = [
            "go",
            "install" if self.module else "build",
            "-trimpath",
            "-buildvcs=false",
            "-ldflags",
            self.ldflags,
        ]
        command += [self.module] if self.module else ["-o", str(directory / self.name), "."]
        environment = {**os.environ, "CGO_ENABLED": "0", "GOBIN": str(directory)}
        result = subprocess.run(command, cwd=ROOT if self.module else SOURCES / self.name, env=environment, check=False)
        if result.returncode:
            raise ProgramMissingError(f"cannot build {self.name}: `{' '.join(command)}` failed (see above).")


_VERSION_VARIABLES: Final = {
    "gitVersion": f"v{KUBERNETES_VERSION}",
    "gitMajor": KUBERNETES_VERSION.split(".")[0],
    "gitMinor": KUBERNETES_VERSION.split(".")[1],
}

KUBE: Final = GoBuild(
    "kube",
    ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "kubelet", "kubectl"),
    ldflags=" ".join(["-s -w", *(f"-X k8s.io/component-base/version.{k}={v}" for k, v in _VERSION_VARIABLES.items())]),
)
HELM: Final = GoBuild("helm", ("helm",), "helm.sh/helm/v4/cmd/helm@v4.3.1")
KWOK: Final = GoBuild("kwok", ("kwok",), "sigs.k8s.io/kwok/cmd/kwok@v0.8.0")
KUBE_SCORE: Final = GoBuild("kube-score", ("kube-score",), "github.com/zegl/kube-score/cmd/kube-score@v1.20.0")
COREDNS: Final = GoBuild("coredns", ("coredns",))
BUILDS: Final = (KUBE, COREDNS, HELM, KWOK, KUBE_SCORE)


def go_is_installed() -> bool:
    return shutil.which("go") is not None


def program(name: str) -> Path:
    """Returns the path of a built program.

    Raises:
        ProgramMissingError: It is not built yet.
    """
    build = next(build for build in BUILDS if name in build.programs)
    path = build.directory / name
    if not path.exists():
        raise ProgramMissingError(
            f"{name} is not built. Run `make programs`"
            + ("." if go_is_installed() else " after the installation of Go 1.26.")
        )
    return path


def link(build: GoBuild) -> None:
    """Links the programs of a build into `LINKS`."""
    LINKS.mkdir(parents=True, exist_ok=True)
    for name in build.programs:
        new = LINKS / f".{name}.{os.getpid()}"
        new.symlink_to(build.directory / name)
        new.replace(LINKS / name)


def main(names: list[str]) -> None:
    """Builds and links programs. Where Go is missing, only CI fails: elsewhere the tests that need a program skip."""
    try:
        for build in BUILDS:
            if not names or build.name in names:
                build.build()
                link(build)
    except ProgramMissingError as error:
        required = go_is_installed() or bool(os.environ.get("CI"))
        print(f"{error}" if required else f"{error} The tests of Kubernetes are skipped.", file=sys.stderr)
        sys.exit(1 if required else 0)


if __name__ == "__main__":
    main(sys.argv[1:])
