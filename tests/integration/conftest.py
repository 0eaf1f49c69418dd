from pathlib import Path

import pytest

from tests.models.cache import cached_model

ROOT = Path(__file__).parents[2]
MODELS = ROOT / "tests" / "models"


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """SmolLM2-135M-Instruct, a real model. Built once, in 40 s."""
    return cached_model(ROOT / "examples" / "smollm2.py")


@pytest.fixture(scope="session")
def tiny_llama() -> Path:
    """A Llama with random weights, for tests that do not depend on the output."""
    return cached_model(MODELS / "tiny_llama.py", MODELS / "byte_tokenizer.py")


@pytest.fixture(scope="session")
def tiny_bert() -> Path:
    """A BERT with random weights, for text embeddings."""
    return cached_model(MODELS / "tiny_bert.py", MODELS / "byte_tokenizer.py")


@pytest.fixture(scope="session")
def tiny_qwen25vl() -> Path:
    """A Qwen2.5-VL with random weights. The number of tokens depends on the size of the image."""
    return _tiny_vision_model("tiny_qwen25vl.py")


@pytest.fixture(scope="session")
def tiny_internvl() -> Path:
    """An InternVL 3 with random weights. The number of tokens depends on the number of tiles."""
    return _tiny_vision_model("tiny_internvl.py")


def _tiny_vision_model(script: str) -> Path:
    return cached_model(MODELS / script, MODELS / "byte_tokenizer.py", MODELS / "random_weights.py")
