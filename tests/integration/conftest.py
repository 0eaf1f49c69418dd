from pathlib import Path

import pytest

from tests.models.cache import cached_model

ROOT = Path(__file__).parents[2]
MODELS = ROOT / "tests" / "models"


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """SmolLM2-135M-Instruct: a real model. Made in 40 s, once."""
    return cached_model(ROOT / "examples" / "smollm2.py")


@pytest.fixture(scope="session")
def tiny_llama() -> Path:
    """A random Llama: for everything that does not depend on what a model says."""
    return cached_model(MODELS / "tiny_llama.py", MODELS / "byte_tokenizer.py")


@pytest.fixture(scope="session")
def tiny_bert() -> Path:
    """A random BERT, which embeds texts."""
    return cached_model(MODELS / "tiny_bert.py", MODELS / "byte_tokenizer.py")


@pytest.fixture(scope="session")
def tiny_qwen25vl() -> Path:
    """A random Qwen2.5-VL: an image is as many tokens as it has pixels for."""
    return _tiny_vision_model("tiny_qwen25vl.py")


@pytest.fixture(scope="session")
def tiny_internvl() -> Path:
    """A random InternVL 3: an image is as many tokens as it has tiles for."""
    return _tiny_vision_model("tiny_internvl.py")


def _tiny_vision_model(script: str) -> Path:
    return cached_model(MODELS / script, MODELS / "byte_tokenizer.py", MODELS / "random_weights.py")
