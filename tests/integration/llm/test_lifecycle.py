"""A language executor starts, fails and stops cleanly."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from cornserve.exit_status import CANNOT_START
from cornserve.v1 import executor_pb2 as pb
from cornserve_demo import reader
from cornserve_tasklib import ChatRequest, CompletionRequest, EngineOptions, LLMTask
from tests.integration.llm.client import connected
from tests.integration.llm.process import START_SECONDS, STOP_SECONDS, ExecutorProcess, running_executor
from tests.waiting import until

pytestmark = pytest.mark.timeout(300)

LONG = ChatRequest.ask("Go on.", max_tokens=400, temperature=0).model_copy(update={"ignore_eos": True})


@pytest.fixture
def own_executor(tiny_task: LLMTask, tmp_path: Path) -> Iterator[ExecutorProcess]:
    """A newly started executor for a single test. No process may remain after the test."""
    with running_executor(tiny_task, tmp_path) as executor:
        yield executor


@pytest.fixture
def forked_executor(tiny_task: LLMTask, fork_variables: dict[str, str], tmp_path: Path) -> Iterator[ExecutorProcess]:
    """An executor for a single test, which starts in seconds."""
    with running_executor(tiny_task, tmp_path, environment=fork_variables) as executor:
        yield executor


async def test_it_reports_its_progress_and_finishes_running_requests_on_sigterm(
    forked_executor: ExecutorProcess,
) -> None:
    messages = []
    for observation in forked_executor.observations():
        messages.append(observation.message)
        if observation.phase == pb.PHASE_READY:
            break
    assert [*dict.fromkeys(filter(None, messages))][-2:] == ["loading weights", "warming up"]

    async with connected(forked_executor.endpoint) as client:
        running = await client.start(LONG)
        await running.first_chunk()

        forked_executor.terminate()

        assert len((await running.reply()).response.token_ids) == 400
    assert forked_executor.process.wait(STOP_SECONDS) == 0


def test_the_process_of_a_forked_executor_imports_no_engine(executor: ExecutorProcess) -> None:
    """Each import of vLLM would take 15 s of CPU time."""
    assert executor.process.memory_info().rss < 100 << 20


@pytest.mark.slow
async def test_the_executor_exits_when_an_idle_engine_dies(own_executor: ExecutorProcess) -> None:
    own_executor.until_ready()

    own_executor.engine_process().kill()

    assert own_executor.process.wait(STOP_SECONDS) == 1
    # Python's resource tracker outlives the process, and may log that it has cleaned up.
    assert "the engine died: vLLM's EngineCore process is gone\n" in own_executor.log.read_text()


async def test_callers_receive_an_error_when_a_busy_engine_dies(
    forked_executor: ExecutorProcess,
) -> None:
    forked_executor.until_ready()
    engine = forked_executor.engine_process()
    async with connected(forked_executor.endpoint) as client:
        running = await client.start(LONG)
        await running.first_chunk()

        engine.kill()

        reply = await running.reply()
    assert reply.code == "ABORTED"
    assert reply.end.message == "the engine died: vLLM's EngineCore process is gone"
    assert forked_executor.process.wait(STOP_SECONDS) == 1


def test_sigterm_during_imports_stops_the_executor(own_executor: ExecutorProcess) -> None:
    assert any(observation.message == "importing vLLM" for observation in own_executor.observations())

    own_executor.terminate()

    assert own_executor.process.wait(STOP_SECONDS) == 0


@pytest.mark.slow
async def test_sigterm_while_the_engine_loads_stops_both_processes(own_executor: ExecutorProcess) -> None:
    await until(lambda: bool(own_executor.process.children()), seconds=START_SECONDS)

    own_executor.terminate()

    assert own_executor.process.wait(STOP_SECONDS) == 0


@pytest.fixture
def broken_model(tiny_llama: Path, tmp_path: Path) -> Path:
    """A copy of the tiny model, which the test breaks."""
    return Path(shutil.copytree(tiny_llama, tmp_path / "model"))


def start_error(task: LLMTask, directory: Path, environment: Mapping[str, str] = {}) -> str:
    """Returns the last line in the log of an executor that fails to start."""
    with running_executor(task, directory, environment=environment) as executor:
        assert executor.process.wait(START_SECONDS) == CANNOT_START
        return executor.last_line()


def test_a_model_directory_that_does_not_exist_is_named(tmp_path: Path) -> None:
    line = start_error(LLMTask(model_id=str(tmp_path / "nowhere")), tmp_path)

    assert line.endswith(f"model directory not found: {tmp_path}/nowhere")


def test_a_directory_without_a_config_is_rejected(tmp_path: Path) -> None:
    line = start_error(LLMTask(model_id=str(tmp_path)), tmp_path)

    assert f"{tmp_path} is not a model directory: it contains no config.json" in line


def test_an_unsupported_architecture_is_named(
    broken_model: Path, fork_variables: dict[str, str], tmp_path: Path
) -> None:
    config = json.loads((broken_model / "config.json").read_text())
    (broken_model / "config.json").write_text(json.dumps(config | {"architectures": ["AbacusForCausalLM"]}))

    line = start_error(LLMTask(model_id=str(broken_model)), tmp_path, fork_variables)

    assert "vLLM rejects" in line
    assert "AbacusForCausalLM" in line
    assert len(line) < 500


@pytest.mark.slow
async def test_the_warm_up_includes_media_if_the_template_refuses_other_chats(
    fork_variables: dict[str, str], tmp_path: Path
) -> None:
    task = LLMTask(model_id=str(reader.MODEL), options=EngineOptions(kv_cache_memory_bytes=64 << 20))

    with running_executor(task, tmp_path, environment=fork_variables) as executor:
        executor.until_ready()
        metrics = await executor.metrics()

    assert metrics["cornserve_llm_e2e_request_latency_seconds_count"] == 2  # A completion and an image


@pytest.mark.slow
async def test_a_model_without_a_chat_template_completes_texts(
    broken_model: Path, fork_variables: dict[str, str], tmp_path: Path
) -> None:
    (broken_model / "chat_template.jinja").unlink()
    task = LLMTask(model_id=str(broken_model), options=EngineOptions(kv_cache_memory_bytes=64 << 20))

    with running_executor(task, tmp_path, environment=fork_variables) as executor:
        executor.until_ready()
        async with connected(executor.endpoint) as client:
            rejected = await client.invoke(ChatRequest.ask("Hello?"))
            completed = await client.invoke(CompletionRequest(prompt="Hello", max_tokens=3, ignore_eos=True))

    assert rejected.code == "INVALID_ARGUMENT"
    assert "chat template" in rejected.end.message
    assert len(completed.response.token_ids) == 3
