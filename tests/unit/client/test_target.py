from __future__ import annotations

import json
from pathlib import Path

import pytest

from cornserve.client import TargetError
from cornserve.client.target import name_of, resolve

CHAT = """
from cornserve import App
from cornserve_tasklib import Chat
app = App(name="mine", paths=[Chat(model_id="x")])
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    directory = tmp_path / "SmolLM2-135M Instruct"
    directory.mkdir()
    (directory / "config.json").write_text("{}")
    return directory


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "app.py"
    path.write_text(CHAT)
    return path


def test_a_file_has_the_apps_name_in_it(file: Path) -> None:
    target = resolve(str(file), name=None, replicas=2)
    assert (target.name, target.spec.source, target.spec.replicas) == ("mine", CHAT, 2)
    assert target.invitation == "cornserve chat mine"


def test_another_name_than_the_files_is_refused(file: Path) -> None:
    with pytest.raises(TargetError, match="defines the app 'mine'"):
        resolve(str(file), name="yours", replicas=1)


def test_an_error_in_the_file_names_its_line(file: Path) -> None:
    file.write_text("x = 1\ny = 1 / 0\n")
    with pytest.raises(TargetError, match=r"app.py:2: ZeroDivisionError: division by zero"):
        resolve(str(file), name=None, replicas=1)


def test_a_model_directory_gives_the_app_its_name(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(model.parent)
    target = resolve(model.name, name=None, replicas=1)
    assert (target.name, target.spec.model) == ("smollm2-135m-instruct", str(model))


def test_a_hugging_face_id_is_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    target = resolve("Qwen/Qwen3-0.6B", name=None, replicas=1)
    assert (target.name, target.spec.model) == ("qwen3-0.6b", "Qwen/Qwen3-0.6B")


@pytest.mark.parametrize(
    ("architecture", "invitation"),
    [
        ("LlamaForCausalLM", "cornserve chat smollm2-135m-instruct"),
        ("BertModel", "cornserve invoke smollm2-135m-instruct JSON"),
        ("Novel", "cornserve chat smollm2-135m-instruct"),
    ],
)
def test_what_a_model_takes_is_what_it_is_invited_with(model: Path, architecture: str, invitation: str) -> None:
    (model / "config.json").write_text(json.dumps({"architectures": [architecture]}))
    assert resolve(str(model), name=None).invitation == invitation


def test_a_chosen_name_counts(model: Path) -> None:
    assert resolve(str(model), name="small", replicas=1).name == "small"


@pytest.mark.parametrize(
    ("target", "complaint"),
    [
        ("nowhere.py", "cannot read nowhere.py: No such file or directory"),
        ("nowhere", "no Python file"),
        ("./no/where", "no Python file"),
        ("/no/where", "no Python file"),
        ("-no/where", "no Python file"),
        (".", "has no config.json"),
        ("nul\0.py", "cannot read nul"),
        ("x" * 300, "xxx"),
        ("~nobody-of-this-name/x", "cannot look for ~nobody-of-this-name/x"),
    ],
)
def test_what_cannot_be_deployed_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str, complaint: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TargetError, match=complaint):
        resolve(target, name=None, replicas=1)


def test_a_name_that_is_none_is_refused(model: Path) -> None:
    with pytest.raises(TargetError, match="invalid app name"):
        resolve(str(model), name="My App", replicas=1)


@pytest.mark.parametrize(
    ("model", "name"),
    [("/a/B c/", "b-c"), ("o/_X.y_", "x.y"), ("o/" + "x" * 80, "x" * 63)],
)
def test_names_of_models_are_made_valid(model: str, name: str) -> None:
    assert name_of(model) == name
