"""Chats with images and videos, and the metrics of the executors that serve them."""

from __future__ import annotations

import random
from base64 import b64decode, b64encode
from collections.abc import Sequence
from io import BytesIO
from typing import Any

import httpx2 as httpx
from PIL import Image

from tests.executor_metrics import sum_of
from tests.integration.serving.conftest import CommandLine
from tests.video import video_file

TOKENS = 16

Part = dict[str, Any]


def noise_part(seed: int, width: int = 112, height: int = 84) -> Part:
    return image_part(noise_png(seed, width, height))


def noise_png(seed: int, width: int = 112, height: int = 84) -> bytes:
    pixels = random.Random(seed).randbytes(width * height * 3)
    file = BytesIO()
    Image.frombytes("RGB", (width, height), pixels).save(file, "PNG")
    return file.getvalue()


def image_part(content: bytes, media_type: str = "image/png") -> Part:
    return {"type": "image_url", "image_url": {"url": f"data:{media_type};base64,{b64encode(content).decode()}"}}


def image_of(part: Part) -> Image.Image:
    """Returns the image of a part that `image_part` has made."""
    return Image.open(BytesIO(b64decode(part["image_url"]["url"].partition(",")[2])))


def video_part(count: int, width: int, height: int, **options: Any) -> Part:
    file = video_file(count=count, width=width, height=height, **options)
    url = f"data:video/mp4;base64,{b64encode(file).decode()}"
    return {"type": "video_url", "video_url": {"url": url}}


def text_part(text: str) -> Part:
    return {"type": "text", "text": text}


CHATS: dict[str, list[Part]] = {
    "text only": [text_part("Hello there")],
    "one image": [text_part("What is this?"), noise_part(1)],
    "another image": [text_part("What is this?"), noise_part(2)],
    "an image first": [noise_part(1), text_part("What is this?")],
    "several images of different sizes": [
        noise_part(1),
        text_part("and"),
        noise_part(2, 224, 56),
        noise_part(3, 56, 168),
        text_part("?"),
    ],
    "the same image twice": [noise_part(1), noise_part(1)],
    "videos and an image": [video_part(20, 96, 64), noise_part(1), video_part(12, 64, 80), text_part("What happens?")],
}


def ask(cornserve: CommandLine, app: str, content: Sequence[Part], **options: Any) -> list[int]:
    """Returns the tokens of the response."""
    body = {"messages": [{"role": "user", "content": content}], "temperature": 0, "max_tokens": TOKENS} | options
    response = httpx.post(f"{cornserve.url}/v1/apps/{app}/invoke", json=body, timeout=120)
    assert response.status_code == 200, response.text
    tokens: list[int] = response.json()["token_ids"]
    return tokens


def sum_metric(cornserve: CommandLine, app: str, metric: str) -> float:
    """Returns the sum of a metric over the executors of the app."""
    total = 0.0
    for target in httpx.get(f"{cornserve.url}/admin/v1/metrics/targets").json():
        if app in target["labels"].get("app", "").split(","):
            total += sum_of(metric, f"http://{target['targets'][0]}/metrics")
    return total
