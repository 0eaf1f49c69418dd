"""How a language executor starts, and every way in which it ends."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from cornserve.v1 import executor_pb2 as pb
from cornserve_tasklib import ChatRequest, CompletionRequest, LLMTask
from tests.integration.llm.client import connected
from tests.integration.llm.process import START_SECONDS, STOP_SECONDS, ExecutorProcess, running_executor
from tests.waiting import until

pytestmark = pytest.mark.timeout(300)

LONG = ChatRequest.ask("Go on.", max_tokens=1000, temperature=0).model_copy(update={"ignore_eos": True})


@pytest.fixture
def own_executor(tiny_task: LLMTask, tmp_path: Path) -> Iterator[ExecutorProcess]:
    """An executor that the test may ruin; it has only just begun to start. Whatever ends it, nothing may remain."""
    with running_executor(tiny_task, tmp_path) as executor:
        yield executor


async def test_it_says_what_it_does_and_on_sigterm_finishes_what_it_has_begun(own_executor: ExecutorProcess) -> None:
    messages = []
    for report in own_executor.observations():
        messages.append(report.message)
        if report.phase == pb.PHASE_READY:
            break
    assert [*dict.fromkeys(filter(None, messages))] == ["importing vLLM", "loading weights", "warming up"]

    async with connected(own_executor.endpoint) as client:
        begun = await client.start(LONG)
        await begun.first_chunk()

        own_executor.terminate()

        assert len((await begun.reply()).response.token_ids) == 1000
    assert own_executor.process.wait(STOP_SECONDS) == 0


async def test_the_death_of_an_idle_engine_ends_the_executor(own_executor: ExecutorProcess) -> None:
    own_executor.until_ready()

    own_executor.engine_process().kill()

    assert own_executor.process.wait(STOP_SECONDS) == 1
    # Python's resource tracker, which outlives it, may add that it has had to clean up.
    assert "the engine died: vLLM's EngineCore process is gone\n" in own_executor.log.read_text()


async def test_the_death_of_a_busy_engine_is_told_to_callers_and_ends_the_executor(
    own_executor: ExecutorProcess,
) -> None:
    own_executor.until_ready()
    async with connected(own_executor.endpoint) as client:
        begun = await client.start(LONG)
        await begun.first_chunk()

        own_executor.engine_process().kill()

        reply = await begun.reply()
    assert reply.code == "ABORTED"
    assert reply.end.message == "the engine died: vLLM's EngineCore process is gone"
    assert own_executor.process.wait(STOP_SECONDS) == 1


def test_sigterm_during_imports_ends_the_executor(own_executor: ExecutorProcess) -> None:
    assert any(report.message == "importing vLLM" for report in own_executor.observations())

    own_executor.terminate()

    assert own_executor.process.wait(STOP_SECONDS) == 0


async def test_sigterm_while_the_engine_process_loads_ends_both(own_executor: ExecutorProcess) -> None:
    await until(lambda: bool(own_executor.process.children()), seconds=START_SECONDS)

    own_executor.terminate()

    assert own_executor.process.wait(STOP_SECONDS) == 0


@pytest.fixture
def broken_model(tiny_llama: Path, tmp_path: Path) -> Path:
    """A copy of the tiny model, to be broken."""
    return Path(shutil.copytree(tiny_llama, tmp_path / "model"))


def refusal(task: LLMTask, folder: Path) -> str:
    """The last line of the log of an executor that does not start."""
    with running_executor(task, folder) as executor:
        assert executor.process.wait(START_SECONDS) == 1
        return executor.last_line()


def test_a_model_directory_that_does_not_exist_is_named(tmp_path: Path) -> None:
    line = refusal(LLMTask(model_id=str(tmp_path / "nowhere")), tmp_path)

    assert line.endswith(f"the executor did not start: model directory not found: {tmp_path}/nowhere")


def test_a_directory_without_a_config_is_no_model(tmp_path: Path) -> None:
    line = refusal(LLMTask(model_id=str(tmp_path)), tmp_path)

    assert line.endswith(f"the executor did not start: {tmp_path} is not a model directory: it has no config.json")


def test_an_architecture_that_vllm_does_not_know_is_named(broken_model: Path, tmp_path: Path) -> None:
    config = json.loads((broken_model / "config.json").read_text())
    (broken_model / "config.json").write_text(json.dumps(config | {"architectures": ["AbacusForCausalLM"]}))

    line = refusal(LLMTask(model_id=str(broken_model)), tmp_path)

    assert "the executor did not start: vLLM refuses" in line
    assert "AbacusForCausalLM" in line
    assert len(line) < 500


def test_a_context_longer_than_the_models_is_refused_with_both_numbers(tiny_llama: Path, tmp_path: Path) -> None:
    line = refusal(LLMTask(model_id=str(tiny_llama), max_model_len=9999), tmp_path)

    assert "the executor did not start: vLLM refuses" in line
    assert "9999" in line
    assert "8192" in line


async def test_a_model_without_a_chat_template_completes_texts(broken_model: Path, tmp_path: Path) -> None:
    (broken_model / "chat_template.jinja").unlink()

    with running_executor(LLMTask(model_id=str(broken_model), kv_cache_memory_bytes=64 << 20), tmp_path) as executor:
        executor.until_ready()
        async with connected(executor.endpoint) as client:
            refused = await client.invoke(ChatRequest.ask("Hello?"))
            completed = await client.invoke(CompletionRequest(prompt="Hello", max_tokens=3, ignore_eos=True))

    assert refused.code == "INVALID_ARGUMENT"
    assert "chat template" in refused.end.message
    assert len(completed.response.token_ids) == 3
