"""The digest of a model changes with its files."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

import cornserve_tasklib.directory_digest
from cornserve_executors.model_digest import model_digest
from cornserve_tasklib.directory_digest import SAMPLE_BYTES, SAMPLES


@pytest.fixture
def model(tmp_path: Path) -> Path:
    directory = tmp_path / "model"
    directory.mkdir()
    (directory / "config.json").write_text("{}")
    (directory / "model.safetensors").write_bytes(b"weights")
    return directory


def test_copies_of_a_directory_have_the_same_digest(model: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(model, copy)
    (copy / ".cache").write_text("of the download")
    os.utime(copy / "model.safetensors", (1, 1))

    assert model_digest(str(model), None) == model_digest(str(copy), None) != ""


def test_other_contents_of_the_same_size_have_another_digest(model: Path) -> None:
    digest, weights = model_digest(str(model), None), model / "model.safetensors"
    status = weights.stat()

    weights.write_bytes(b"changed")
    os.utime(weights, ns=(status.st_atime_ns, status.st_mtime_ns))

    assert weights.stat().st_size == status.st_size
    assert model_digest(str(model), None) != digest


@pytest.mark.parametrize("place", [0, 0.5, 1])
def test_the_digest_of_a_large_file_depends_on_samples_of_it(
    model: Path, monkeypatch: pytest.MonkeyPatch, place: float
) -> None:
    monkeypatch.setattr(cornserve_tasklib.directory_digest, "FULLY_READ_BYTES", 1000)
    weights = model / "model.safetensors"
    size = SAMPLES * SAMPLE_BYTES  # The samples are all of it.
    weights.write_bytes(bytes(size))
    digest = model_digest(str(model), None)

    with weights.open("r+b") as file:
        file.seek(int(place * (size - 1)))
        file.write(b"1")

    assert model_digest(str(model), None) != digest


def test_the_digest_of_a_large_file_depends_on_each_tensor(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cornserve_tasklib.directory_digest, "FULLY_READ_BYTES", 1000)
    weights = model / "model.safetensors"
    small = 2 * SAMPLE_BYTES  # Between two samples.
    first, second = ({"dtype": "U8", "shape": [1], "data_offsets": [place, place + 1]} for place in (0, small))
    header = json.dumps({"__metadata__": {"format": "pt"}, "first": first, "second": second}).encode()
    start = len(header).to_bytes(8, "little") + header
    weights.write_bytes(start + bytes(5 * SAMPLES * SAMPLE_BYTES))
    digests = [model_digest(str(model), None)]

    for place in (small - SAMPLE_BYTES, small):
        with weights.open("r+b") as file:
            file.seek(len(start) + place)
            file.write(b"1")
        digests.append(model_digest(str(model), None))

    assert digests[0] == digests[1] != digests[2]


@pytest.mark.parametrize("offset", ["1e30", "Infinity", "[]"])
def test_a_file_with_invalid_offsets_has_a_digest(model: Path, monkeypatch: pytest.MonkeyPatch, offset: str) -> None:
    monkeypatch.setattr(cornserve_tasklib.directory_digest, "FULLY_READ_BYTES", 1000)
    header = b'{"first": {"data_offsets": [%s, 1]}}' % offset.encode()
    weights = model / "model.safetensors"
    weights.write_bytes(len(header).to_bytes(8, "little") + header + bytes(2 * SAMPLES * SAMPLE_BYTES))

    assert model_digest(str(model), None)


def test_a_directory_of_many_files_is_not_read_completely(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    size = 2 * SAMPLES * SAMPLE_BYTES
    monkeypatch.setattr(cornserve_tasklib.directory_digest, "MAX_FULLY_READ_BYTES", size + 100)
    files = [model / f"weights-{number}.safetensors" for number in range(2)]
    for file in files:
        file.write_bytes(bytes(size))
    digests = [model_digest(str(model), None)]

    for file in reversed(files):
        with file.open("r+b") as opened:
            opened.seek(SAMPLE_BYTES)  # Between two samples.
            opened.write(b"1")
        digests.append(model_digest(str(model), None))

    assert digests[0] == digests[1] != digests[2]


def test_a_changed_adapter_changes_the_digest(model: Path, tmp_path: Path) -> None:
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    digests = {model_digest(str(model), None)}
    for weights in (b"weights", b"changed"):
        (adapter / "adapter_model.safetensors").write_bytes(weights)
        digests.add(model_digest(str(model), None, [str(adapter)]))

    assert len(digests - {""}) == 3


def test_a_model_of_the_hub_has_the_digest_of_its_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    repository = tmp_path / "models--owner--name"
    (repository / "refs").mkdir(parents=True)

    def digest_of(commit: str) -> str:
        snapshot = repository / "snapshots" / commit
        snapshot.mkdir(parents=True, exist_ok=True)
        (snapshot / "config.json").write_text("{}")
        (repository / "refs/main").write_text(commit)
        return model_digest("owner/name", None)

    first, second, again = (digest_of(commit * 40) for commit in "aba")
    assert first == again != second


@pytest.mark.parametrize("model_id", ["/missing", "owner/missing"])
def test_the_digest_of_a_missing_model_is_unknown(
    model_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    assert model_digest(model_id, None) == ""
