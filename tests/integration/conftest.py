from pathlib import Path

import pytest

from tests.models.cache import made_by

ROOT = Path(__file__).parents[2]
MODELS = ROOT / "tests" / "models"


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """SmolLM2-135M-Instruct: a real model. Made in 40 s, once."""
    return made_by(ROOT / "examples" / "smollm2.py")


@pytest.fixture(scope="session")
def tiny_llama() -> Path:
    """A random Llama: for everything that does not depend on what a model says."""
    return made_by(MODELS / "tiny_llama.py", MODELS / "byte_tokenizer.py")


@pytest.fixture(scope="session")
def tiny_bert() -> Path:
    """A random BERT, which embeds texts."""
    return made_by(MODELS / "tiny_bert.py", MODELS / "byte_tokenizer.py")
