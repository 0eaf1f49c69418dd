"""Makes classifiers and models that embed texts and images, of two layers with random weights.

python -m tests.models.tiny_pooling_families DIRECTORY: a directory for each
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.models.random_weights import randomise
from tests.models.tiny_bert import bert_config, bert_tokenizer
from tests.models.tiny_family import PATCH, TILE, text_config, tokenizer, vision_config

LABELS = {0: "sad", 1: "calm", 2: "happy"}


def _save(model: Any, tokenizer_or_processor: Any, directory: Path) -> None:
    randomise(model)
    model.save_pretrained(directory)
    tokenizer_or_processor.save_pretrained(directory)


def bert_classifier(directory: Path) -> None:
    from transformers import BertForSequenceClassification

    words = bert_tokenizer()
    config = bert_config(words, initializer_range=0.3, id2label=LABELS, label2id={v: k for k, v in LABELS.items()})
    _save(BertForSequenceClassification(config), words, directory)


def qwen3_reward(directory: Path) -> None:
    from transformers import Qwen3Config, Qwen3ForSequenceClassification

    words = tokenizer([])
    config = Qwen3Config(**text_config(words, head_dim=32), num_labels=1)
    _save(Qwen3ForSequenceClassification(config), words, directory)


def _text_tower(words: Any) -> dict[str, Any]:
    return {
        "vocab_size": len(words),
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "max_position_embeddings": 64,
        "projection_dim": 64,
        "bos_token_id": None,
        "eos_token_id": words.eos_token_id,
        "pad_token_id": words.pad_token_id,
    }


def _ending_tokenizer() -> Any:
    """Returns a tokenizer that appends the token at which CLIP reads the vector of a text."""
    from tokenizers.processors import TemplateProcessing

    words = tokenizer([])
    end = words.eos_token
    words.backend_tokenizer.post_processor = TemplateProcessing(
        single=f"$A {end}", special_tokens=[(end, words.eos_token_id)]
    )
    return words


def clip(directory: Path) -> None:
    from transformers import CLIPConfig, CLIPImageProcessor, CLIPModel, CLIPProcessor

    words = _ending_tokenizer()
    size = {"height": TILE, "width": TILE}
    processor = CLIPProcessor(CLIPImageProcessor(size={"shortest_edge": TILE}, crop_size=size), words)
    config = CLIPConfig(
        text_config=_text_tower(words), vision_config=vision_config(projection_dim=64), projection_dim=64
    )
    _save(CLIPModel(config), processor, directory)


def siglip(directory: Path) -> None:
    from transformers import SiglipConfig, SiglipImageProcessor, SiglipModel, SiglipProcessor

    words = _ending_tokenizer()
    processor = SiglipProcessor(SiglipImageProcessor(size={"height": TILE, "width": TILE}), words)
    config = SiglipConfig(
        text_config=_text_tower(words) | {"projection_size": 64}, vision_config=vision_config(patch_size=PATCH)
    )
    _save(SiglipModel(config), processor, directory)


MODELS: tuple[Callable[[Path], None], ...] = (bert_classifier, qwen3_reward, clip, siglip)

if __name__ == "__main__":
    import torch

    for make in MODELS:
        torch.manual_seed(0)
        make(Path(sys.argv[1]) / make.__name__)
