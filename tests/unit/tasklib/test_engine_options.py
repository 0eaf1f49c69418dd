"""Options of engines: the specs of executors, and the options of a model that is deployed without Python."""

from __future__ import annotations

import re
from typing import Any

import pytest
from pydantic import ValidationError

from cornserve.app.load import load_app
from cornserve.app.settings import ExecutorOverride
from cornserve.app.spec import AppModel, AppSource, AppSpec
from cornserve.task.errors import DefinitionError
from cornserve.task.spec import ExecutorSpec
from cornserve.task.unit import unit_tasks
from cornserve_executors.vllm.settings import engine_args
from cornserve_tasklib import EmbeddingTask, EncoderTask, EngineOptions, LLMTask, PrefillDecodeChat
from cornserve_tasklib.model_families import default_paths
from cornserve_tasklib.model_options import ModelOptions

TEXT = "Qwen/Qwen3-0.6B"
VISION = "Qwen/Qwen2.5-VL-7B-Instruct"


def specs(model: str, path: str, options: ModelOptions) -> dict[str, ExecutorSpec]:
    """Returns the executors of a path by name."""
    return {unit.executor: unit.spec for unit in unit_tasks(default_paths(model, options)[path])}


def test_defaults_are_not_part_of_the_spec() -> None:
    task = LLMTask(model_id="m")

    assert task.spec.config.keys().isdisjoint({"options", "revision"})
    assert LLMTask(model_id="m", options=EngineOptions(dtype="auto", engine_args={})).key == task.key
    assert EncoderTask(model_id="m", revision=None).spec.config.keys().isdisjoint({"revision"})


def test_executors_with_unequal_options_are_not_shared() -> None:
    options = [
        EngineOptions(),
        EngineOptions(max_model_len=1000),
        EngineOptions(max_num_seqs=1),
        EngineOptions(engine_args={"block_size": 32}),
        EngineOptions(engine_args={"block_size": 64}),
    ]

    assert len({LLMTask(model_id="m", options=each).key for each in options}) == len(options)
    assert LLMTask(model_id="m", revision="v2").key != LLMTask(model_id="m").key
    assert EncoderTask(model_id="m", revision="v2").key != EncoderTask(model_id="m").key


@pytest.mark.parametrize("options", [EngineOptions(), EngineOptions(trust_remote_code=True)])
def test_code_of_the_repository_runs_only_if_the_option_says_so(options: EngineOptions) -> None:
    args = engine_args(LLMTask(model_id="m", options=options))

    assert args["trust_remote_code"] is options.trust_remote_code


def test_tensor_parallelism_needs_gpus() -> None:
    assert EmbeddingTask(model_id="m", options=EngineOptions(tensor_parallel_size=4)).spec.gpus == 4


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"max_model_length": 1}, "max_model_length"),
        ({"max_num_seqs": 0}, "max_num_seqs"),
        ({"gpu_memory_utilization": 1.5}, "gpu_memory_utilization"),
        ({"engine_args": {"seed": 1}}, "'seed' is an option: set it outside of engine_args"),
        ({"engine_args": {"blok_size": 64}}, r"vLLM \S+ has no argument 'blok_size', did you mean 'block_size'\?"),
        ({"engine_args": {"a": 1}}, "vLLM .* has no argument 'a'"),
        ({"engine_args": {"block_size": "abc"}}, "block_size: must be a valid integer, not 'abc'"),
        ({"engine_args": {"async_scheduling": "abc"}}, "async_scheduling: must be a valid boolean, not 'abc'"),
        ({"engine_args": {"tokenizer": 8}}, "tokenizer: must be a valid string, not 8"),
        ({"engine_args": {"scheduling_policy": "no"}}, "scheduling_policy: must be 'fcfs' or 'priority', not 'no'"),
        ({"engine_args": {"speculative_config": "ngram"}}, "speculative_config: must be an object, not 'ngram'"),
        ({"engine_args": {"model": "other"}}, "'model' cannot be set"),
        ({"engine_args": {"trust_remote_code": True}}, "'trust_remote_code' is an option: set it outside"),
        ({"engine_args": {"data_parallel_size": 2}}, "'data_parallel_size' cannot be set"),
        ({"engine_args": {"enable_lora": True}}, "'enable_lora' cannot be set"),
        ({"engine_args": {"max_lora_rank": 8}}, "'max_lora_rank' cannot be set"),
        ({"lora_modules": {"sql": "sql-lora"}}, "'sql-lora' is not an absolute path"),
        ({"lora_modules": {"sql": "/models/../sql"}}, "'/models/../sql' is not an absolute path"),
        ({"lora_modules": {"a b": "/models/sql"}}, "a b"),
    ],
)
def test_invalid_options_are_named(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        EngineOptions.model_validate(options)
    with pytest.raises(DefinitionError, match=f"invalid options of the executor 'llm': .*{reason}"):
        default_paths(TEXT, ModelOptions(by_executor={"*": options}))


@pytest.mark.parametrize("parser", ["tool_parser", "reasoning_parser"])
def test_a_task_names_a_parser_of_vllm(parser: str) -> None:
    with pytest.raises(ValidationError, match=r"vLLM \S+ has no parser 'abacus': choose from "):
        LLMTask.model_validate({"model_id": "m", parser: "abacus"})


def test_options_of_a_named_executor_take_precedence() -> None:
    options = ModelOptions(
        revision="v2",
        by_executor={
            "*": {"max_num_seqs": 8, "dtype": "float16"},
            "llm": {"max_num_seqs": 4, "max_model_len": 1000},
            "encoder": {"max_batch_patches": 100},
        },
    )

    executors = specs(VISION, "e-l", options)

    assert executors["llm"].config["options"] == {"max_num_seqs": 4, "max_model_len": 1000, "dtype": "float16"}
    assert executors["encoder"].config["max_batch_patches"] == 100
    assert executors["encoder"].config["dtype"] == "float16"  # the encoder's dtype is that of the language model
    assert {spec.config["revision"] for spec in executors.values()} == {"v2"}


def test_prefill_and_decode_have_options_that_precede_those_of_the_language_model() -> None:
    options = ModelOptions(
        by_executor={
            "*": {"max_model_len": 500, "max_num_seqs": 8},
            "llm": {"max_num_seqs": 16},
            "prefill": {"max_num_batched_tokens": 4096, "engine_args": {"long_prefill_token_threshold": 256}},
            "decode": {"max_num_seqs": 64, "kv_cache_memory_bytes": 1 << 30},
        },
    )

    executors = specs(TEXT, "p-d", options)

    assert executors["prefill"].config["options"] == {
        "max_model_len": 500,
        "max_num_seqs": 16,
        "max_num_batched_tokens": 4096,
        "engine_args": {"long_prefill_token_threshold": 256},
    }
    assert executors["decode"].config["options"] == {
        "max_model_len": 500,
        "max_num_seqs": 64,
        "kv_cache_memory_bytes": 1 << 30,
    }
    assert specs(TEXT, "pd", options) == {"decode": executors["decode"]}
    assert specs(TEXT, "chat", options)["llm"].config["options"] == {"max_model_len": 500, "max_num_seqs": 16}
    assert specs(VISION, "e-p-d", options)["decode"].config["options"] == executors["decode"].config["options"]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"dtype": "float16"}, "dtype: is 'auto' for prefill and 'float16' for decode"),
        ({"max_model_len": 100}, "max_model_len: is None for prefill and 100 for decode"),
        ({"engine_args": {"block_size": 64}}, "block_size: is None for prefill and 64 for decode"),
        ({"engine_args": {"kv_cache_dtype": "fp8"}}, "kv_cache_dtype: is None for prefill and 'fp8' for decode"),
    ],
)
def test_prefill_and_decode_with_unequal_kv_caches_are_refused(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(DefinitionError, match=f"{problem}, whose KV caches must be of one shape: set it for both"):
        default_paths(TEXT, ModelOptions(by_executor={"decode": options}))
    with pytest.raises(DefinitionError, match=problem):
        PrefillDecodeChat(model_id="m", decode_options=EngineOptions.model_validate(options))


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"tensor_parallel_size": 2}, "tensor_parallel_size: prefill and decode run apart only on one GPU each"),
        (
            {"engine_args": {"speculative_config": {"method": "ngram", "num_speculative_tokens": 4}}},
            "speculative_config: the KV cache of a draft model is not sent from prefill to decode",
        ),
    ],
)
def test_options_with_which_kv_caches_are_not_copied_are_refused_where_prefill_and_decode_run_apart(
    options: dict[str, Any], problem: str
) -> None:
    overrides = [ExecutorOverride(name="*", options=options)]
    whole, split = (AppSpec(model=AppModel(id=TEXT, shares={path: 1}), executors=overrides) for path in ("chat", "p-d"))

    assert load_app("app", whole, "unused").executor_specs()
    with pytest.raises(DefinitionError, match=problem):
        load_app("app", split, "unused")


def test_an_executor_that_the_model_does_not_have_is_named() -> None:
    message = f"{TEXT} has no executor 'encoder': choose from decode, llm, prefill, * for all"
    with pytest.raises(DefinitionError, match=re.escape(message)):
        default_paths(TEXT, ModelOptions(by_executor={"encoder": {}}))


def test_an_app_applies_the_options_of_its_spec() -> None:
    overrides = [ExecutorOverride(name="*", options={"max_model_len": 500})]

    app = load_app("app", AppSpec(model=AppModel(id=TEXT, revision="v2"), executors=overrides), "unused")

    [spec] = app.executor_specs().values()
    assert spec.config["options"] == {"max_model_len": 500}
    assert spec.config["revision"] == "v2"


def test_an_app_with_source_sets_options_in_its_source() -> None:
    overrides = [ExecutorOverride(name="llm", options={"max_model_len": 500})]

    with pytest.raises(DefinitionError, match="options cannot be set for an app with source: set them in the source"):
        load_app("app", AppSpec(source=AppSource(inline=""), executors=overrides), "unused")


def test_the_input_source_of_an_encoder_is_another_executor_with_the_same_settings() -> None:
    encoder = EncoderTask(model_id="m", revision="v2", dtype="float16")
    assert "constant" not in encoder.spec.config
    assert encoder.input_source() == EncoderTask(model_id="m", revision="v2", dtype="float16", constant=True, gpus=0)
    assert encoder.input_source().key != encoder.key


@pytest.mark.parametrize("model", ["./models/qwen", "~/models/qwen", "models/qwen/v2", ""])
def test_a_task_needs_an_absolute_path_or_an_id(model: str) -> None:
    with pytest.raises(
        ValidationError, match="is neither an absolute path nor a Hugging Face id: give a model directory"
    ):
        LLMTask(model_id=model)
