"""From a model directory to how it is served."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cornserve.task.errors import DefinitionError
from cornserve.task.unit import unit_tasks
from cornserve_tasklib import Chat, Embed
from cornserve_tasklib.families import default_paths

HERMES = 'For each call: <tool_call>\n{\\"name\\": <function-name>, \\"arguments\\": <args-json-object>}\n</tool_call>'
LLAMA = 'Respond as {"name": function name, "parameters": dictionary of argument name and its value}.'


def directory(folder: Path, architecture: str, **files: str) -> str:
    (folder / "config.json").write_text(json.dumps({"architectures": [architecture]}))
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)
    return str(folder)


def test_a_language_model_chats(tmp_path: Path) -> None:
    model = directory(tmp_path, "LlamaForCausalLM")

    assert default_paths(model) == {"chat": Chat(model_id=model)}


@pytest.mark.parametrize(("template", "parser"), [(HERMES, "hermes"), (LLAMA, "llama3_json"), ("{{ tools }}", None)])
def test_the_template_tells_how_the_model_calls_tools(tmp_path: Path, template: str, parser: str | None) -> None:
    model = directory(tmp_path, "Qwen2ForCausalLM", chat_template__jinja=template)

    assert default_paths(model) == {"chat": Chat(model_id=model, tool_parser=parser)}


def test_the_template_may_be_with_the_tokenizer(tmp_path: Path) -> None:
    model = directory(tmp_path, "Qwen2ForCausalLM", tokenizer_config__json=json.dumps({"chat_template": HERMES}))

    assert default_paths(model) == {"chat": Chat(model_id=model, tool_parser="hermes")}


def test_a_model_without_a_head_embeds(tmp_path: Path) -> None:
    model = directory(tmp_path, "BertModel")

    assert default_paths(model) == {"embed": Embed(model_id=model)}


def test_a_language_model_of_sentence_transformers_embeds(tmp_path: Path) -> None:
    model = directory(tmp_path, "Qwen3ForCausalLM", modules__json="[]")

    assert default_paths(model) == {"embed": Embed(model_id=model)}


@pytest.mark.parametrize("model", ["gpt2", "Qwen/Qwen3-0.6B", "_/a.b-c"])
def test_of_an_id_of_the_hub_the_executor_will_see(model: str) -> None:
    assert default_paths(model) == {"chat": Chat(model_id=model)}


@pytest.mark.parametrize("model", ["", "-a/b", "a/-b", "./a", "~/a", "a/b/c"])
def test_what_is_no_id_of_the_hub_is_refused(model: str) -> None:
    with pytest.raises(DefinitionError, match="is neither an absolute path nor a Hugging Face id"):
        default_paths(model)


def test_what_is_neither_is_named(tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match="is a UNet2DConditionNet: known are text models"):
        default_paths(directory(tmp_path, "UNet2DConditionNet"))


@pytest.mark.parametrize("architecture", ["Qwen2_5_VLForConditionalGeneration", "InternVLForConditionalGeneration"])
def test_a_multimodal_model_has_a_path_for_each_place_of_its_encoder(tmp_path: Path, architecture: str) -> None:
    model = directory(tmp_path, architecture)

    paths = default_paths(model)

    assert list(paths) == ["monolith", "e-l", "e-el"]
    executors = {name: {unit.executor_spec().executor for unit in unit_tasks(path)} for name, path in paths.items()}
    assert executors == {"monolith": {"llm"}, "e-l": {"llm", "encoder"}, "e-el": {"llm", "encoder"}}


def test_hybrids_run_on_the_executors_of_monoliths(tmp_path: Path) -> None:
    paths = default_paths(directory(tmp_path, "Qwen2_5_VLForConditionalGeneration"))

    keys = {name: {unit.key for unit in unit_tasks(path)} for name, path in paths.items()}

    assert keys["monolith"] < keys["e-el"]
    assert len(keys["e-l"] & keys["e-el"]) == 1, "the encoder"


@pytest.mark.parametrize("model", ["Qwen/Qwen2.5-VL-7B-Instruct", "OpenGVLab/InternVL3-8B-hf"])
def test_multimodal_models_are_known_by_their_names(model: str) -> None:
    assert "e-l" in default_paths(model)
