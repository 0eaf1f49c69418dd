"""The request and the options of apps that speak, for results that do not depend on chance."""

from __future__ import annotations

from tests.integration.cli.cli_instance import SMALL_KV_CACHE
from tests.integration.serving.image_chats import noise_part, text_part

SPEAK = {
    "chat": {
        "messages": [{"role": "user", "content": [text_part("this?"), noise_part(1)]}],
        "max_tokens": 12,
        "temperature": 0,
        "ignore_eos": True,
    },
    "voice": "chelsie",
    "seed": 1,
}


def speech_options(max_tokens: int) -> list[str]:
    return ["--option", f"talker.max_tokens={max_tokens}", *SMALL_KV_CACHE]
