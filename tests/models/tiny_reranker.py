"""Makes a cross-encoder: a BERT of two layers with random weights and one label. Each byte is a token.

python -m tests.models.tiny_reranker DIRECTORY
"""

import sys
from pathlib import Path

from tests.models.tiny_bert import bert_config, bert_tokenizer


def make(directory: Path) -> None:
    import torch
    from transformers import BertForSequenceClassification

    tokenizer = bert_tokenizer()
    torch.manual_seed(0)
    model = BertForSequenceClassification(bert_config(tokenizer, initializer_range=0.3, num_labels=1))
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)


if __name__ == "__main__":
    make(Path(sys.argv[1]))
