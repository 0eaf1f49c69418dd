"""Lists the architectures of the installed vLLM that chat about media, because the control plane has no vLLM.

`python -m scripts.vllm_architectures` writes the list; with `--check`, it only compares. It imports all models of vLLM.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

FILE = Path(__file__).parent.parent / "tasklib/cornserve_tasklib/vllm_architectures.py"

UNLOADABLE = ("KananaVForConditionalGeneration",)
"""Architectures that chat about media, whose code needs packages that are not installed."""


def chat_architectures() -> Iterator[str]:
    """Yields the architectures that generate text from prompts with media, except for drafts of other models."""
    from vllm.model_executor.models import ModelRegistry
    from vllm.model_executor.models.interfaces import (
        supports_multimodal,
        supports_realtime,
        supports_transcription,
    )
    from vllm.model_executor.models.interfaces_base import is_pooling_model, is_text_generation_model
    from vllm.model_executor.models.registry import _SPECULATIVE_DECODING_MODELS, _TRANSFORMERS_BACKEND_MODELS

    for architecture, registered in ModelRegistry.models.items():
        if architecture in _SPECULATIVE_DECODING_MODELS or architecture in _TRANSFORMERS_BACKEND_MODELS:
            continue
        try:
            model = registered.load_model_cls()
        except ImportError:
            if architecture in UNLOADABLE:
                yield architecture
            continue
        transcribes_only = supports_transcription(model) and model.supports_transcription_only
        if (
            supports_multimodal(model)
            and is_text_generation_model(model)
            and not (is_pooling_model(model) or transcribes_only or supports_realtime(model))
        ):
            yield architecture


def generated() -> str:
    from vllm import __version__

    lines = "".join(f'        "{architecture}",\n' for architecture in sorted(chat_architectures()))
    return f'''"""The architectures of vLLM that chat about media, from `python -m scripts.vllm_architectures`."""

from __future__ import annotations

from typing import Final

VLLM_VERSION: Final = "{__version__}"

MULTIMODAL_CHATS: Final = frozenset(
    {{
{lines}    }}
)
"""Names in the field `architectures` of a model's config.json."""
'''


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="fail if the file differs from the installed vLLM")
    options = parser.parse_args()
    content = generated()
    if not options.check:
        FILE.write_text(content)
    elif FILE.read_text() != content:
        sys.exit(f"{FILE} differs from the installed vLLM: run `python -m scripts.vllm_architectures`")


if __name__ == "__main__":
    main()
