"""The program that downloads a model before its executors start, against a local hub."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from cornserve_tasklib import LLMTask
from tests.credentials import write_secret
from tests.hub import COMMIT, GATED, MODEL, Hub, running_hub

FILES = {
    "config.json": b"{}",
    "model.safetensors": b"weights" * 1000,
    "pytorch_model.bin": b"the same weights",
    "original/consolidated.pth": b"the same weights",
}
NEEDED = Counter(["config.json", "model.safetensors"])


@dataclass(frozen=True, slots=True)
class Download:
    """A started download."""

    process: subprocess.Popen[str]

    def wait(self) -> tuple[int, str]:
        """Returns the exit status and the last line of the log."""
        _, log = self.process.communicate(timeout=100)
        return self.process.returncode, log.strip().splitlines()[-1]


class Downloader:
    def __init__(self, endpoint: str, directory: Path) -> None:
        self._directory = directory
        self.cache = directory / "cache"
        self.termination_log = directory / "termination-log"
        self.termination_log.touch()
        self.endpoint = endpoint

    def start(self, *arguments: str, offline: bool = False) -> Download:
        return self._start("cornserve_executors.download", *arguments, offline=offline)

    def start_executor(self, model: str, *, offline: bool = False) -> Download:
        """Starts the executor of a language model, which does not wait for a download."""
        spec = LLMTask(model_id=model).executor_spec().model_dump_json()
        secret = str(write_secret(self._directory))
        return self._start("cornserve_executors.base", "--spec", spec, "--secret", secret, offline=offline)

    def _start(self, module: str, *arguments: str, offline: bool) -> Download:
        command = [sys.executable, "-m", module, *arguments]
        environment = {
            **os.environ,
            "HF_ENDPOINT": self.endpoint,
            "HF_HOME": str(self.cache),
            "HF_HUB_OFFLINE": str(int(offline)),
        }
        command += ["--termination-log", str(self.termination_log)]
        return Download(subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True))


@pytest.fixture
def hub() -> Iterator[Hub]:
    with running_hub(FILES) as hub:
        yield hub


@pytest.fixture
def downloader(hub: Hub, tmp_path: Path) -> Downloader:
    return Downloader(hub.url, tmp_path)


def test_processes_that_share_a_cache_download_each_needed_file_once(hub: Hub, downloader: Downloader) -> None:
    spec = LLMTask(model_id=MODEL).executor_spec().model_dump_json()

    for download in [downloader.start("--spec", spec) for _ in range(2)]:
        status, line = download.wait()
        assert status == 0
        snapshot = Path(line.partition("the model is at ")[2])
        assert snapshot.is_relative_to(downloader.cache)
        assert sorted(path.name for path in snapshot.iterdir()) == sorted(NEEDED)

    assert hub.downloads == NEEDED


def test_a_downloaded_model_needs_no_network(hub: Hub, downloader: Downloader) -> None:
    assert downloader.start(MODEL, "--revision", COMMIT).wait()[0] == 0
    downloader.endpoint = "http://127.0.0.1:9"

    status, line = downloader.start(MODEL, "--revision", COMMIT).wait()

    assert (status, f"snapshots/{COMMIT}" in line) == (0, True)
    assert hub.downloads == NEEDED


def test_an_interrupted_download_is_continued(hub: Hub, downloader: Downloader) -> None:
    status, line = downloader.start(MODEL).wait()
    assert status == 0
    weights = Path(line.partition("the model is at ")[2]) / "model.safetensors"
    weights.resolve().unlink()
    weights.unlink()

    assert downloader.start(MODEL).wait()[0] == 0

    assert weights.read_bytes() == FILES["model.safetensors"]
    assert hub.downloads == NEEDED + Counter(["model.safetensors"])


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["team/nothing"], "the hub has no such model, or it is private: check the id, or give a token (HF_TOKEN)"),
        ([GATED], "access to it is restricted: accept its license on the hub, and give a token (HF_TOKEN)"),
        ([MODEL, "--revision", "v9"], "the model has no such revision: give a branch, tag or commit of it"),
    ],
)
def test_a_refused_download_names_the_reason(downloader: Downloader, arguments: list[str], reason: str) -> None:
    status, line = downloader.start(*arguments).wait()

    assert status == 1
    assert line.endswith(f"to {downloader.cache}/hub: {reason}")
    assert f"cannot download {arguments[0]}" in line
    assert downloader.termination_log.read_text() == line[line.index("cannot download") :]


@pytest.mark.parametrize(
    ("offline", "reason"),
    [
        (False, "check the network, HF_ENDPOINT and HTTPS_PROXY"),
        (True, "it is not in the cache, and downloads are disabled (HF_HUB_OFFLINE)"),
    ],
)
def test_without_a_network_the_error_names_the_endpoint(downloader: Downloader, reason: str, *, offline: bool) -> None:
    downloader.endpoint = "http://127.0.0.1:9"

    status, line = downloader.start(MODEL, offline=offline).wait()

    assert status == 1
    assert f"cannot download {MODEL} from http://127.0.0.1:9 to " in line
    assert line.endswith(reason)


@pytest.mark.parametrize(
    ("model", "offline", "endpoint", "reason"),
    [
        (MODEL, False, "http://127.0.0.1:9", "check the network, HF_ENDPOINT and HTTPS_PROXY"),
        (MODEL, True, None, "it is not in the cache, and downloads are disabled (HF_HUB_OFFLINE)"),
        ("team/nothing", False, None, "the hub has no such model, or it is private: check the id, or give a token"),
    ],
)
def test_an_executor_whose_model_cannot_be_downloaded_ends_before_it_imports_its_engine(
    downloader: Downloader, model: str, endpoint: str | None, reason: str, *, offline: bool
) -> None:
    downloader.endpoint = endpoint or downloader.endpoint
    _, log = downloader.start_executor(model, offline=offline).process.communicate(timeout=100)

    assert f"cannot download {model} from {downloader.endpoint} to " in log
    assert reason in log
    assert f"no directory {model} exists" in log
    assert "importing vLLM" not in log


def test_a_directory_is_not_downloaded(hub: Hub, downloader: Downloader) -> None:
    assert downloader.start("/models/tiny").wait()[0] == 0
    assert hub.downloads == Counter()
