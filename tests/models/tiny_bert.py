"""Makes a BERT of two layers with random weights, which are the same on every machine. Each byte is a token.

python tests/models/tiny_bert.py DIRECTORY
"""

import sys
from pathlib import Path
from typing import Any

from tests.models.byte_tokenizer import byte_tokenizer

SPECIAL_TOKENS = ["[PAD]", "[CLS]", "[SEP]", "[UNK]"]


def make(directory: Path) -> None:
    import torch
    from transformers import BertModel

    tokenizer = bert_tokenizer()
    torch.manual_seed(0)
    BertModel(bert_config(tokenizer, initializer_range=0.5)).save_pretrained(directory)
    tokenizer.save_pretrained(directory)


def bert_config(tokenizer: Any, *, initializer_range: float, **options: Any) -> Any:
    """Returns a configuration whose weights are distributed widely enough that outputs depend on texts."""
    from transformers import BertConfig

    return BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=512,
        initializer_range=initializer_range,
        pad_token_id=tokenizer.pad_token_id,
        **options,
    )


def bert_tokenizer() -> Any:
    from tokenizers.processors import BertProcessing
    from transformers import PreTrainedTokenizerFast

    tokenizer = byte_tokenizer(SPECIAL_TOKENS)
    ids = {token: tokenizer.token_to_id(token) or 0 for token in SPECIAL_TOKENS}
    tokenizer.post_processor = BertProcessing(("[SEP]", ids["[SEP]"]), ("[CLS]", ids["[CLS]"]))
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]", unk_token="[UNK]"
    )


if __name__ == "__main__":
    make(Path(sys.argv[1]))
