"""A request for speech whose result does not depend on chance."""

from __future__ import annotations

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
