"""Makes a VITS with random weights, which are the same on every machine. Each letter is a token.

python -m tests.models.tiny_vits DIRECTORY [SPEAKERS]
"""

import json
import sys
from pathlib import Path

ALPHABET = " abcdefghijklmnopqrstuvwxyz'-"


def make(directory: Path, speakers: int = 1) -> None:
    import torch
    from transformers import VitsConfig, VitsModel, VitsTokenizer

    directory.mkdir(parents=True, exist_ok=True)
    vocabulary = directory / "vocab.json"
    vocabulary.write_text(json.dumps({"|": 0} | {letter: number for number, letter in enumerate(ALPHABET, start=1)}))
    tokenizer = VitsTokenizer(
        str(vocabulary), pad_token="|", unk_token=" ", language="eng", phonemize=False, is_uroman=False
    )
    config = VitsConfig(
        vocab_size=len(ALPHABET) + 1,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        window_size=4,
        ffn_dim=64,
        flow_size=32,
        spectrogram_bins=65,
        num_speakers=speakers,
        speaker_embedding_size=8 if speakers > 1 else 0,
        upsample_initial_channel=32,
        upsample_rates=[8, 8, 4],
        upsample_kernel_sizes=[16, 16, 8],
        resblock_kernel_sizes=[3],
        resblock_dilation_sizes=[[1, 3]],
        depth_separable_num_layers=1,
        duration_predictor_flow_bins=10,
        duration_predictor_num_flows=2,
        prior_encoder_num_flows=2,
        prior_encoder_num_wavenet_layers=2,
        posterior_encoder_num_wavenet_layers=2,
        sampling_rate=16_000,
    )
    torch.manual_seed(0)
    model = VitsModel(config)
    model.eval()
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)


if __name__ == "__main__":
    make(Path(sys.argv[1]), *map(int, sys.argv[2:]))
