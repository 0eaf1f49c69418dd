"""Makes a Qwen-Image-Edit with the random weights of the tiny Qwen-Image. It reads images of up to 256 tokens.

python -m tests.models.tiny_qwenimageedit DIRECTORY
"""

import sys
from pathlib import Path

from tests.models.tiny_qwenimage import components


def make(directory: Path) -> None:
    from diffusers import QwenImageEditPipeline
    from transformers import Qwen2VLImageProcessor, Qwen2VLProcessor, Qwen2VLVideoProcessor

    parts = components()
    size = {"shortest_edge": 56 * 56, "longest_edge": 448 * 448}
    processor = Qwen2VLProcessor(
        image_processor=Qwen2VLImageProcessor(size=size),
        video_processor=Qwen2VLVideoProcessor(size=size),
        tokenizer=parts["tokenizer"],
    )
    QwenImageEditPipeline(**parts, processor=processor).save_pretrained(directory)


if __name__ == "__main__":
    make(Path(sys.argv[1]))
