from __future__ import annotations

import json
from pathlib import Path

import pytest
from pydantic import JsonValue

from cornserve.app.spec import AppModel
from cornserve.client import DeployTargetError
from cornserve.client.deploy_target import DeployTarget, default_app_name, resolve_target

CHAT = """
from cornserve import App
from cornserve_tasklib import Chat
app = App(name="mine", paths=[Chat(model_id="x")])
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    directory = tmp_path / "SmolLM2-135M Instruct"
    directory.mkdir()
    (directory / "config.json").write_text('{"architectures": ["LlamaForCausalLM"]}')
    return directory


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "app.py"
    path.write_text(CHAT)
    return path


def model_of(target: DeployTarget) -> AppModel:
    assert target.spec.model is not None
    return target.spec.model


def test_a_file_contains_the_name_of_its_app(file: Path) -> None:
    target = resolve_target(str(file), name=None, replicas=2)
    assert (target.name, target.spec.inline_source, target.spec.replicas) == ("mine", CHAT, 2)
    assert target.example_command == "cornserve chat mine"


def test_a_name_other_than_the_one_in_the_file_is_rejected(file: Path) -> None:
    with pytest.raises(DeployTargetError, match="defines the app 'mine'"):
        resolve_target(str(file), name="yours", replicas=1)


@pytest.mark.parametrize(("name", "message"), [("Mine", "invalid app name"), ("yours", "defines the app 'mine'")])
def test_a_file_does_not_run_under_a_wrong_name(tmp_path: Path, name: str, message: str) -> None:
    file, ran = tmp_path / "app.py", tmp_path / "ran"
    file.write_text(f"import pathlib\npathlib.Path({str(ran)!r}).touch()\n{CHAT}")
    with pytest.raises(DeployTargetError, match=message):
        resolve_target(str(file), name=name)
    assert not ran.exists()


@pytest.mark.parametrize(
    ("name", "filename"), [("corn-shop.py", "corn-shop.py"), ("app.py", "app.py"), ("\x1bmaïs.py", "app.py")]
)
def test_the_source_has_the_name_of_its_file(tmp_path: Path, name: str, filename: str) -> None:
    file = tmp_path / name
    file.write_text(CHAT)

    source = resolve_target(str(file), name=None).spec.source

    assert source is not None
    assert source.filename == filename
    assert ("filename" in source.model_fields_set) == (filename != "app.py")


def test_an_error_in_the_file_names_its_line(file: Path) -> None:
    file.write_text("x = 1\ny = 1 / 0\n")
    with pytest.raises(DeployTargetError, match=r"app.py:2: ZeroDivisionError: division by zero"):
        resolve_target(str(file), name=None, replicas=1)


def test_a_model_directory_gives_the_app_its_name(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(model.parent)
    target = resolve_target(model.name, name=None, replicas=1)
    assert (target.name, model_of(target).id) == ("smollm2-135m-instruct", str(model))


def test_a_hugging_face_id_is_sent_unchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    target = resolve_target("Qwen/Qwen3-0.6B", name=None, replicas=1)
    assert (target.name, model_of(target).id) == ("qwen3-0.6b", "Qwen/Qwen3-0.6B")


@pytest.mark.parametrize(
    ("architecture", "command"),
    [
        ("LlamaForCausalLM", "cornserve chat smollm2-135m-instruct"),
        ("BertModel", "cornserve invoke smollm2-135m-instruct JSON"),
    ],
)
def test_the_example_command_fits_the_request_type_of_the_model(model: Path, architecture: str, command: str) -> None:
    (model / "config.json").write_text(json.dumps({"architectures": [architecture]}))
    assert resolve_target(str(model), name=None).example_command == command


@pytest.mark.parametrize(
    ("pipeline", "arguments"),
    [
        ("QwenImagePipeline", 'painter "a field of corn"'),
        ("QwenImageEditPipeline", 'painter "a field at night" --image FILE'),
    ],
)
def test_the_example_command_of_an_image_model_draws(model: Path, pipeline: str, arguments: str) -> None:
    (model / "model_index.json").write_text(json.dumps({"_class_name": pipeline}))

    command = resolve_target(str(model), name="painter").example_command

    assert command == f"cornserve imagine {arguments}"


def test_the_example_command_of_a_text_to_speech_model_speaks(model: Path) -> None:
    (model / "config.json").write_text('{"architectures": ["VitsModel"]}')
    (model / "tokenizer_config.json").write_text('{"phonemize": false}')

    assert resolve_target(str(model), name="tts").example_command == 'cornserve speak tts "Hello!"'


def test_a_given_name_replaces_the_default(model: Path) -> None:
    assert resolve_target(str(model), name="small", replicas=1).name == "small"


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("nowhere.py", "cannot read nowhere.py: No such file or directory"),
        ("nowhere", "nowhere does not exist: give a Python file"),
        ("./no/where", "./no/where does not exist: give a Python file"),
        ("/no/where", "/no/where does not exist: give a Python file"),
        ("-no/where", "-no/where does not exist: give a Python file"),
        (".", "contains no config.json and no model_index.json"),
        ("nul\0.py", "cannot read nul"),
        ("x" * 300, "xxx"),
        ("~nobody-of-this-name/x", "cannot access ~nobody-of-this-name/x"),
    ],
)
def test_an_invalid_target_is_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DeployTargetError, match=message):
        resolve_target(target, name=None, replicas=1)


def test_a_directory_of_weights_in_another_format_is_rejected(model: Path) -> None:
    (model / "onnx").mkdir()
    (model / "onnx/model.onnx").touch()

    with pytest.raises(DeployTargetError, match="consists of ONNX files, which vLLM and transformers do not read"):
        resolve_target(str(model))
    (model / "model.safetensors").touch()
    assert resolve_target(str(model)).name == "smollm2-135m-instruct"


def test_an_invalid_app_name_is_rejected(model: Path) -> None:
    with pytest.raises(DeployTargetError, match="invalid app name"):
        resolve_target(str(model), name="My App", replicas=1)


@pytest.mark.parametrize(
    ("model", "name"),
    [("/a/B c/", "b-c"), ("o/_X.y_", "x.y"), ("o/" + "x" * 80, "x" * 63)],
)
def test_default_app_names_are_valid(model: str, name: str) -> None:
    assert default_app_name(model) == name


def test_an_adapter_is_the_default_name_of_its_app(model: Path) -> None:
    options: dict[str, JsonValue] = {"lora_modules": {"SQL_v2": "/models/sql"}}
    target = resolve_target(model, name=None, lora="SQL_v2", options=options)

    assert (target.name, model_of(target).lora) == ("sql_v2", "SQL_v2")
    assert resolve_target(model, name="queries", lora="SQL_v2", options=options).name == "queries"


def test_the_image_model_of_a_chat_is_a_directory_or_an_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "drawer").mkdir()
    (tmp_path / "drawer" / "model_index.json").write_text('{"_class_name": "QwenImagePipeline"}')
    monkeypatch.chdir(tmp_path)

    assert model_of(resolve_target("Qwen/Qwen3-8B", drawer="drawer")).drawer == str(tmp_path / "drawer")
    assert model_of(resolve_target("Qwen/Qwen3-8B", drawer="Qwen/Qwen-Image")).drawer == "Qwen/Qwen-Image"
    with pytest.raises(DeployTargetError, match="cannot draw with sketches: give a model directory or a Hugging Face"):
        resolve_target("Qwen/Qwen3-8B", drawer="sketches")


def test_options_are_grouped_by_executor(model: Path) -> None:
    options: dict[str, JsonValue] = {
        "max_model_len": 1000,
        "llm.dtype": "float16",
        "llm.engine_args": {"block_size": 64},
    }

    overrides = resolve_target(model, name=None, options=options).spec.executors

    assert {override.name: override.options for override in overrides} == {
        "*": {"max_model_len": 1000},
        "llm": {"dtype": "float16", "engine_args": {"block_size": 64}},
    }
