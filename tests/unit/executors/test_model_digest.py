"""The digest of a model changes with its files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cornserve_executors.model_digest import model_digest


@pytest.fixture
def model(tmp_path: Path) -> Path:
    directory = tmp_path / "model"
    directory.mkdir()
    (directory / "config.json").write_text("{}")
    (directory / "model.safetensors").write_bytes(b"weights")
    return directory


def test_a_directory_keeps_its_digest_until_a_file_changes(model: Path, tmp_path: Path) -> None:
    digest = model_digest(str(model), None)
    weights = model / "model.safetensors"

    assert digest == model_digest(str(model), None) != ""
    weights.write_bytes(b"changed")
    os.utime(weights, (1, 1))
    assert model_digest(str(model), None) != digest


def test_a_changed_adapter_changes_the_digest(model: Path, tmp_path: Path) -> None:
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    digests = [model_digest(str(model), None), model_digest(str(model), None, [str(adapter)])]
    (adapter / "adapter_model.safetensors").write_bytes(b"weights")
    digests.append(model_digest(str(model), None, [str(adapter)]))

    assert digests[0] == digests[1] != digests[2]


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
