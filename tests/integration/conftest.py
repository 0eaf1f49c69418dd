import ctypes
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from cornserve_executors.vllm.engine_fork import METHOD
from tests.executor_fork_server.running import running_fork_server
from tests.models.cache import cached_model
from tests.models.tiny_families import tiny_model

ROOT = Path(__file__).parents[2]
MODELS = ROOT / "tests" / "models"


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Removes a variable that vLLM has set in the test process, because executors would inherit it."""
    os.environ.pop(METHOD, None)


@pytest.fixture(scope="session")
def fork_variables(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Variables of the environment for processes whose executors and engines are forked instead of started."""
    with running_fork_server(tmp_path_factory.mktemp("fork-server")) as variables:
        yield variables


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """SmolLM2-135M-Instruct, a real model. Built once, in 40 s."""
    return cached_model(ROOT / "examples" / "smollm2.py")


@pytest.fixture(scope="module", autouse=True)
def return_freed_memory() -> Iterator[None]:
    """Returns the memory of engines that a module has loaded and freed to the system. Other workers need it."""
    yield
    ctypes.CDLL(None).malloc_trim(0)


@pytest.fixture(scope="session")
def tiny_llama() -> Path:
    """A Llama with random weights, for tests that do not depend on the output."""
    return cached_model(MODELS / "tiny_llama.py", MODELS / "byte_tokenizer.py")


@pytest.fixture(scope="session")
def tiny_bert() -> Path:
    """A BERT with random weights, for text embeddings."""
    return cached_model(MODELS / "tiny_bert.py", MODELS / "byte_tokenizer.py")


@pytest.fixture(scope="session")
def tiny_reranker() -> Path:
    """A cross-encoder with random weights."""
    return cached_model(MODELS / "tiny_reranker.py", MODELS / "tiny_bert.py", MODELS / "byte_tokenizer.py")


@pytest.fixture(scope="session")
def tiny_qwen25vl() -> Path:
    """A Qwen2.5-VL with random weights. The number of tokens depends on the size of the image."""
    return tiny_model("qwen25vl")


@pytest.fixture(scope="session")
def tiny_internvl() -> Path:
    """An InternVL 3 with random weights. The number of tokens depends on the number of tiles."""
    return tiny_model("internvl")


@pytest.fixture(scope="session")
def tiny_qwen2audio() -> Path:
    """A Qwen2-Audio with random weights. The number of tokens depends on the duration of the audio."""
    return tiny_model("qwen2audio")


@pytest.fixture(scope="session")
def tiny_whisper() -> Path:
    """A Whisper with random weights and clips of 5 seconds."""
    return cached_model(MODELS / "tiny_whisper.py", MODELS / "random_weights.py")


@pytest.fixture(scope="session")
def tiny_vits() -> Path:
    """A VITS with random weights and one voice."""
    return cached_model(MODELS / "tiny_vits.py")


@pytest.fixture(scope="session")
def tiny_qwenimage() -> Path:
    """A Qwen-Image with random weights: text encoder, denoiser and VAE."""
    return cached_model(MODELS / "tiny_qwenimage.py", MODELS / "byte_tokenizer.py")


@pytest.fixture(scope="session")
def tiny_qwenimageedit() -> Path:
    """A Qwen-Image-Edit with random weights."""
    shared = [MODELS / name for name in ("tiny_qwenimage.py", "byte_tokenizer.py")]
    return cached_model(MODELS / "tiny_qwenimageedit.py", *shared)


@pytest.fixture(scope="session")
def tiny_qwen3omni_talker() -> Path:
    """A Qwen3-Omni with random weights that speaks: thinker, talker and vocoder."""
    shared = [MODELS / name for name in ("tiny_qwen3omni.py", "tiny_family.py", "random_weights.py")]
    return cached_model(MODELS / "tiny_qwen3omni_talker.py", *shared, MODELS / "byte_tokenizer.py")


@pytest.fixture(scope="session")
def tiny_qwen25omni_talker() -> Path:
    """A Qwen2.5-Omni with random weights that speaks: thinker, talker and vocoder."""
    shared = [MODELS / name for name in ("tiny_qwen25omni.py", "tiny_family.py", "random_weights.py")]
    return cached_model(MODELS / "tiny_qwen25omni_talker.py", *shared, MODELS / "byte_tokenizer.py")
