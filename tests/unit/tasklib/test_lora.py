"""LoRA adapters in tasks, apps and requests."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import TypeAdapter, ValidationError

from cornserve.app.load import load_app
from cornserve.app.settings import ExecutorOverride
from cornserve.app.spec import AppModel, AppSpec
from cornserve.task.errors import DefinitionError
from cornserve.task.references import ReferenceEncoder
from cornserve_tasklib import Chat, ChatRequest, CompletionRequest, EmbeddingTask, EngineOptions, LLMTask, Mllm
from cornserve_tasklib.llm import LLMRequest
from cornserve_tasklib.model_families import default_paths
from cornserve_tasklib.model_options import ModelOptions

TEXT = "Qwen/Qwen3-0.6B"
VISION = "Qwen/Qwen2.5-VL-7B-Instruct"
MODULES = {"sql": "/models/sql-lora", "poems": "/models/poems-lora"}
OPTIONS = EngineOptions(lora_modules=MODULES)
UNKNOWN = "lora: no adapter 'other' in lora_modules (sql, poems): add its directory there"


def test_tasks_with_different_adapters_share_an_executor() -> None:
    tasks = [LLMTask(model_id=TEXT, options=OPTIONS, lora=lora) for lora in (None, "sql", "poems")]

    assert len({task.key for task in tasks}) == 1
    assert tasks[0].spec.config["options"] == {"lora_modules": MODULES}


def test_executors_with_other_adapters_or_none_are_not_shared() -> None:
    others = [{}, {"sql": "/models/sql-lora"}, {**MODULES, "sql": "/models/sql-v2"}]
    keys = {LLMTask(model_id=TEXT, options=EngineOptions(lora_modules=modules)).key for modules in [MODULES, *others]}

    assert len(keys) == 4
    assert "lora" not in LLMTask(model_id=TEXT).spec.model_dump_json()


@pytest.mark.parametrize("task", [LLMTask, Chat, Mllm])
def test_an_adapter_that_the_options_do_not_contain_is_named(task: type[LLMTask | Chat | Mllm]) -> None:
    with pytest.raises(ValueError, match=re.escape(UNKNOWN)):
        task(model_id=TEXT, options=OPTIONS, lora="other")


def test_an_embedding_model_has_no_adapters() -> None:
    with pytest.raises(ValueError, match="lora_modules: an embedding model has no LoRA adapters"):
        EmbeddingTask(model_id=TEXT, options=OPTIONS)


@pytest.mark.parametrize("request_type", [ChatRequest, CompletionRequest])
def test_a_client_cannot_select_an_adapter(request_type: type[ChatRequest | CompletionRequest]) -> None:
    fields = {"lora": "sql", "messages": [{"role": "user", "content": "Hi"}]}
    if request_type is CompletionRequest:
        fields = {"lora": "sql", "prompt": "Hi"}

    with pytest.raises(ValidationError, match="a request cannot select an adapter"):
        TypeAdapter(LLMRequest).validate_python(fields)
    assert "lora" not in request_type.model_json_schema()["properties"]


def test_the_executor_receives_the_adapter() -> None:
    task = LLMTask(model_id=TEXT, options=OPTIONS, lora="sql")
    request = ChatRequest.ask("Hi")

    body = task.encode(request.with_lora("sql"), ReferenceEncoder())

    assert task.decode(body) == request.with_lora("sql")
    assert task.decode(task.encode(request, ReferenceEncoder())).lora is None


def app_spec(model: str, lora: str | None, shares: dict[str, int] | None = None) -> AppSpec:
    overrides = [ExecutorOverride(name="llm", options={"lora_modules": dict(MODULES)})]
    return AppSpec(model=AppModel(id=model, lora=lora, shares=shares), executors=overrides)


@pytest.mark.parametrize(("model", "shares"), [(TEXT, None), (VISION, {"e-l": 1, "monolith": 1})])
def test_apps_of_a_model_with_different_adapters_share_executors(model: str, shares: dict[str, int] | None) -> None:
    apps = [load_app("app", app_spec(model, lora, shares=shares), "unused") for lora in (None, "sql", "poems")]

    assert apps[0].executor_specs() == apps[1].executor_specs() == apps[2].executor_specs()
    assert [[getattr(path, "lora", "") for path in app.paths] for app in apps] == [
        [lora] * len(apps[0].paths) for lora in (None, "sql", "poems")
    ]


def test_an_app_cannot_name_an_adapter_without_its_directory() -> None:
    with pytest.raises(DefinitionError, match=re.escape(UNKNOWN)):
        load_app("app", app_spec(TEXT, "other"), "unused")
    with pytest.raises(DefinitionError, match=re.escape("no adapter 'sql' in lora_modules (it is empty)")):
        default_paths(VISION, ModelOptions(lora="sql"))


def test_an_adapter_of_an_embedding_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"architectures": ["BertModel"]}')

    for options in (ModelOptions(lora="sql"), ModelOptions(by_executor={"*": {"lora_modules": dict(MODULES)}})):
        with pytest.raises(DefinitionError, match=f"{tmp_path} is an embedding model, without LoRA adapters"):
            default_paths(str(tmp_path), options)
