"""LoRA adapters in the executor of a language model: tokens equal those of merged weights."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import patch

import pytest
import pytest_asyncio

from cornserve.exit_status import CANNOT_START
from cornserve_executors.base import ExecutorStartError
from cornserve_executors.vllm import settings
from cornserve_tasklib import ChatRequest, CompletionRequest, EngineOptions, LLMTask
from tests.integration.engine_pool import EnginePool
from tests.integration.llm.client import ExecutorClient, connected
from tests.integration.llm.process import START_SECONDS, ExecutorProcess, running_executor
from tests.models.lora_adapters import PREFIX, Weights, make_adapter, merge, write_adapter

if TYPE_CHECKING:
    from cornserve_executors.llm.engine import LLMEngine

TOKENS = 20
PROMPTS = ["Hello", "The quick brown fox jumps over the lazy dog. " * 8, "1 2 3"]
LAYER = "model.layers.0.self_attn.q_proj"


@pytest.fixture(scope="module")
def adapters(tiny_llama: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two adapters with different layers, ranks and scales."""
    directory = tmp_path_factory.mktemp("adapters")
    attention = ["q_proj", "v_proj"]
    everything = [*attention, "k_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    return {
        "attention": make_adapter(tiny_llama, directory / "attention", attention, seed=1, rank=4, scale=2.0),
        "all": make_adapter(tiny_llama, directory / "all", everything, seed=2, rank=10, scale=0.5),
    }


def task(model: Path, adapters: dict[str, Path]) -> LLMTask:
    modules = {name: str(path) for name, path in adapters.items()}
    options = EngineOptions(max_model_len=1024, kv_cache_memory_bytes=64 << 20, lora_modules=modules)
    return LLMTask(model_id=str(model), options=options)


@pytest_asyncio.fixture(loop_scope="session")
async def executor(
    executors: EnginePool[ExecutorProcess], tiny_llama: Path, adapters: dict[str, Path]
) -> ExecutorProcess:
    return await executors.engine(task(tiny_llama, adapters))


@pytest.fixture(scope="module")
def expected(
    tiny_llama: Path, adapters: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> dict[tuple[str | None, str], list[int]]:
    """The tokens of transformers, without an adapter and with the weights of each merged, by adapter and prompt."""
    directory = tmp_path_factory.mktemp("merged")
    models = {None: tiny_llama} | {name: merge(tiny_llama, path, directory / name) for name, path in adapters.items()}
    return {
        (name, prompt): tokens
        for name, model in models.items()
        for prompt, tokens in zip(PROMPTS, generate(model, PROMPTS), strict=True)
    }


def generate(model: Path, prompts: list[str]) -> list[list[int]]:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    llama = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()
    responses = []
    for prompt in prompts:
        inputs = tokenizer(prompt, return_tensors="pt", return_token_type_ids=False)
        with torch.no_grad():
            output = llama.generate(**inputs, max_new_tokens=TOKENS, min_new_tokens=TOKENS, do_sample=False)
        responses.append(output[0, inputs["input_ids"].shape[1] :].tolist())
    return responses


def completion(adapter: str | None, prompt: str) -> CompletionRequest:
    request = CompletionRequest(prompt=prompt, max_tokens=TOKENS, temperature=0, ignore_eos=True)
    return request if adapter is None else request.with_lora(adapter)


async def tokens(client: ExecutorClient, adapter: str | None, prompt: str) -> list[int]:
    return (await client.invoke(completion(adapter, prompt))).response.token_ids


async def test_tokens_equal_those_of_merged_weights(
    executor: ExecutorProcess, expected: dict[tuple[str | None, str], list[int]]
) -> None:
    async with connected(executor.endpoint) as client:
        received = {(name, prompt): await tokens(client, name, prompt) for name, prompt in expected}

    assert received == expected
    for prompt in PROMPTS:
        assert len({str(expected[name, prompt]) for name in (None, "attention", "all")}) == 3


async def test_requests_with_different_adapters_share_a_batch(
    executor: ExecutorProcess, expected: dict[tuple[str | None, str], list[int]]
) -> None:
    keys = list(expected) * 2
    async with connected(executor.endpoint) as client:
        received = await asyncio.gather(*(tokens(client, name, prompt) for name, prompt in keys))

    assert received == [expected[key] for key in keys]


async def test_chats_select_adapters_too(executor: ExecutorProcess) -> None:
    chat = ChatRequest.ask("Hello", max_tokens=TOKENS, temperature=0)
    async with connected(executor.endpoint) as client:
        replies = [await client.invoke(request) for request in (chat, chat.with_lora("all"), chat)]

    base, adapted, again = [reply.response.token_ids for reply in replies]
    assert base == again != adapted


@pytest.mark.slow
def test_an_adapter_that_the_model_cannot_apply_ends_the_start(
    tiny_llama: Path, adapters: dict[str, Path], fork_variables: dict[str, str], tmp_path: Path
) -> None:
    wrong = write_adapter(tmp_path / "wrong", filled(matrices("model.layers.0.mlp.router")))

    spec = task(tiny_llama, {**adapters, "wrong": wrong})
    with running_executor(spec, tmp_path, environment=fork_variables) as executor:
        assert executor.process.wait(START_SECONDS) == CANNOT_START
        line = executor.last_line()

    reason = "the model has no layer 'model.layers.0.mlp.router' to which vLLM can apply an adapter"
    assert line.endswith(f"lora_modules: cannot load the adapter 'wrong' from {wrong}: {reason}")


@pytest.fixture(scope="module")
def engine(tiny_llama: Path, adapters: dict[str, Path], fork_variables: dict[str, str]) -> Iterator[LLMEngine]:
    settings.prepare_environment()
    from cornserve_executors.llm.engine import LLMEngine

    with patch.dict(os.environ, fork_variables):
        engine = LLMEngine(task(tiny_llama, adapters))
    yield engine
    engine.shutdown()


Shapes = dict[str, tuple[int, int]]


def matrices(layer: str = LAYER, *, columns: int = 128, rows: int = 128, rank: int = 4) -> Shapes:
    return {f"{PREFIX}{layer}.lora_A.weight": (rank, columns), f"{PREFIX}{layer}.lora_B.weight": (rows, rank)}


def filled(shapes: Shapes) -> Weights:
    import torch

    return {name: torch.ones(shape) for name, shape in shapes.items()}


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    ("shapes", "config", "reason"),
    [
        (matrices(columns=256), {}, f"the columns of '{LAYER}' in lora_A are 256, but the model needs 128"),
        (matrices(columns=64), {}, f"the columns of '{LAYER}' in lora_A are 64, but the model needs 128"),
        (matrices(rows=64), {}, f"the rows of '{LAYER}' in lora_B are 64, but the model needs 128"),
        (matrices("model.layers.7.mlp.up_proj"), {}, "the model has no layer 'model.layers.7.mlp.up_proj'"),
        (matrices(rank=8), {}, f"'{LAYER}' has 8 rows in lora_A and 8 columns in lora_B, but its rank is 4"),
        (matrices(), {"use_dora": True}, "vLLM does not yet support DoRA"),
        ({f"{PREFIX}{LAYER}.lora_A.weight": (4, 128)}, {}, f"'{LAYER}' has only one of the two matrices"),
    ],
    ids=["larger", "smaller", "rows", "layer", "rank", "dora", "half"],
)
async def test_the_weights_of_an_adapter_must_fit_the_model(
    engine: LLMEngine, tmp_path: Path, shapes: Shapes, config: dict[str, object], reason: str
) -> None:
    wrong = write_adapter(tmp_path / "wrong", filled(shapes), **config)

    with pytest.raises(ExecutorStartError) as raised:
        await engine.load_adapters({"wrong": str(wrong)})

    assert str(raised.value).startswith(f"lora_modules: cannot load the adapter 'wrong' from {wrong}: ")
    assert reason in str(raised.value)


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("matrix", ["lora_A", "lora_B"])
async def test_the_weights_of_an_adapter_must_be_finite(engine: LLMEngine, tmp_path: Path, matrix: str) -> None:
    weights = filled(matrices())
    weights[f"{PREFIX}{LAYER}.{matrix}.weight"][2, 3] = float("nan")
    wrong = write_adapter(tmp_path / "wrong", weights)

    with pytest.raises(ExecutorStartError, match=f"'{LAYER}' has weights that are not finite"):
        await engine.load_adapters({"wrong": str(wrong)})


def config_file(directory: Path, text: str) -> None:
    (directory / "adapter_config.json").write_text(text)


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (shutil.rmtree, "directory not found"),
        (lambda path: (path / "adapter_config.json").unlink(), "cannot read its adapter_config.json (No such file"),
        (lambda path: config_file(path, "{"), "its adapter_config.json is not JSON"),
        (lambda path: config_file(path, "[]"), "its adapter_config.json is not a JSON object"),
        (lambda path: config_file(path, '{"peft_type": "IA3"}'), "its peft_type is 'IA3'"),
        (lambda path: config_file(path, '{"peft_type": "LORA", "r": 513}'), "its rank is 513: vLLM supports 1 to 512"),
        (lambda path: (path / "adapter_model.safetensors").unlink(), "it contains no adapter_model.safetensors"),
    ],
    ids=["missing", "no-config", "no-json", "no-object", "no-lora", "rank", "no-weights"],
)
def test_a_directory_without_an_adapter_is_named(tmp_path: Path, spoil: Callable[[Path], None], reason: str) -> None:
    from cornserve_executors.llm.lora import lora_args

    directory = write_adapter(tmp_path / "sql", filled(matrices()))
    assert lora_args({"sql": str(directory)})["max_lora_rank"] == 8
    spoil(directory)

    with pytest.raises(ExecutorStartError) as raised:
        lora_args({"sql": str(directory)})

    assert str(raised.value).startswith(f"lora_modules: cannot load the adapter 'sql' from {directory}: {reason}")
