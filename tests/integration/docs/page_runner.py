"""Runs the commands of documentation pages as a new user would, in a directory that looks like a fresh clone."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from cornserve.home import Home
from tests.free_ports import free_port
from tests.integration.docs.pages import ROOT, CodeBlock, with_outputs

_MARK = "\x1e"
_END = "END_OF_THE_BLOCK"

_COMMAND = """\
import sys
from cornserve.cli import main

if sys.argv[1:2] == ["up"]:  # Pages run at the same time as other tests, and on machines with few cores.
    sys.argv += ["--limit", "slab-mib=64"] + ([] if "--slots" in sys.argv else ["--cpu-slots", "8"])
main()
"""

_NOT_INHERITED = re.compile("CORNSERVE_|MAKE|MFLAGS|XDG_|VIRTUAL_ENV|ONCE")
"""Environment variables that a new user does not have."""


class PageRunner:
    """Has a home directory, two free ports, and an environment like that of a clone after `make setup`."""

    def __init__(self, directory: Path, *, model: Path | None = None) -> None:
        self.home = directory / "home"
        self.ports = [free_port(), free_port()]
        self._clones = directory / "clones"
        self._venv = directory / "venv"
        directory.mkdir(exist_ok=True)
        _make_venv(self._venv)
        self.cornserve_home = self.home / ".local/share/cornserve"
        self.cornserve_home.mkdir(parents=True)
        if model is not None:  # `make run` creates the same directory.
            shutil.copytree(model, self.cornserve_home / "models" / "smollm2", copy_function=os.link)

    @property
    def environment(self) -> Mapping[str, str]:
        inherited = {name: value for name, value in os.environ.items() if not _NOT_INHERITED.match(name)}
        return inherited | {
            "HOME": str(self.home),
            "PATH": f"{self._venv / 'bin'}:{os.environ['PATH']}",
            "CORNSERVE_PORT": str(self.ports[0]),
            "COLUMNS": "200",
            "NO_COLOR": "1",
            # All locked packages are installed, so pip fetches nothing.
            "PIP_NO_INDEX": "1",
            "PIP_NO_BUILD_ISOLATION": "0",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "PIP_ROOT_USER_ACTION": "ignore",
            # vLLM inspects the class of a new model in another process, which takes 8 s, and keeps the result.
            "VLLM_CACHE_ROOT": os.environ.get("VLLM_CACHE_ROOT", str(Path.home() / ".cache/vllm")),
        }

    def run(self, page: list[CodeBlock], *, seconds: float) -> None:
        """Runs the blocks in one shell, in a new directory that looks like a clone, and checks their outputs."""
        steps = [step for step in with_outputs(page) if _has_program_of(step[0])]
        assert steps
        script = "set -euo pipefail\n" + "".join(_command(*step) for step in steps)
        outputs, status = self._run(self._with_ports(script), seconds)
        done = [step for step, _ in zip(steps, outputs, strict=False)]
        for (block, expected), output in zip(done, outputs, strict=True):
            print(f"--- {block}\n{output}")
            if expected is not None and (status == 0 or block is not done[-1][0]):
                assert _matches(expected.code, output), f"{expected} does not match the output of {block}:\n{output}"
        assert status == 0, f"{done[-1][0]} failed:\n{outputs[-1]}"
        assert len(done) == len(steps)

    def _run(self, script: str, seconds: float) -> tuple[list[str], int]:
        """Returns the output of each block, and the exit status."""
        with ExitStack() as stack:
            shell = stack.enter_context(
                subprocess.Popen(
                    ["bash", "-c", script],
                    cwd=self._new_clone(),
                    env=self.environment,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                    start_new_session=True,
                )
            )
            stack.callback(_kill_process_group, shell.pid)
            output, _ = shell.communicate(timeout=seconds)
        return [self._without_ports(part) for part in output.split(_MARK)[1:]], shell.returncode

    def _new_clone(self) -> Path:
        clone = self._clones / str(len(list(self._clones.glob("*"))))
        clone.mkdir(parents=True)
        (clone / "examples").symlink_to(ROOT / "examples")
        (clone / ".venv").symlink_to(self._venv)
        return clone

    @contextmanager
    def running(self) -> Iterator[PageRunner]:
        """Stops the instances that pages have started at the end of the block, even after a failure."""
        try:
            yield self
        finally:
            self._down()

    def _down(self) -> None:
        for home in (self.cornserve_home, *self._clones.glob("*/other")):
            if Home(home).instance.exists():
                command = [sys.executable, "-m", "cornserve.cli", "down", "--home", str(home)]
                subprocess.run(command, check=True, capture_output=True, timeout=100)

    def _with_ports(self, text: str) -> str:
        """Replaces the ports 8000 and 8001 (second instance) of the pages with free ports."""
        first, second = self.ports
        return re.sub(r"127\.0\.0\.1:8000\b", f"127.0.0.1:{first}", re.sub(r"\b8001\b", str(second), text))

    def _without_ports(self, text: str) -> str:
        first, second = self.ports
        return text.replace(f"127.0.0.1:{first}", "127.0.0.1:8000").replace(f"127.0.0.1:{second}", "127.0.0.1:8001")


def _has_program_of(block: CodeBlock) -> bool:
    """Skips curl commands on a machine without curl, which Cornserve does not require."""
    return shutil.which("curl") is not None or not (block.runs and "curl " in block.code)


def _command(block: CodeBlock, expected: CodeBlock | None) -> str:
    mark = f"printf '{_MARK}'\n"
    if block.title is not None:
        return f"{mark}cat > '{block.title}' <<'{_END}'\n{block.code}{_END}\n"
    code = block.code if block.language == "bash" else f"python - <<'{_END}'\n{block.code}{_END}\n"
    if expected is not None and expected.must_fail:
        return f"{mark}if (\n{code}); then echo 'This should have failed.'; exit 1; fi\n"
    return mark + code


def _matches(expected: str, output: str) -> bool:
    pattern = ".*?".join(re.escape(part) for part in _stripped(expected).split("…"))
    return re.search(pattern, _stripped(output), re.DOTALL) is not None


def _stripped(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


def _make_venv(path: Path) -> None:
    """Creates a virtual environment that sees this one's packages; pages install into the new one."""
    venv.create(path, with_pip=False, symlinks=True)
    (site_packages,) = path.glob("lib/python*/site-packages")
    purelib = sysconfig.get_path("purelib")
    (site_packages / "checkout.pth").write_text(f"import site; site.addsitedir({purelib!r})\n")
    command = path / "bin/cornserve"
    command.write_text(f"#!{path}/bin/python\n{_COMMAND}")
    command.chmod(0o755)


def _kill_process_group(leader: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)
