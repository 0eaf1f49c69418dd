"""The settings of the tokenizers of VITS models."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import JsonValue

_NEEDS = {"phonemize": (True, "phonemes of espeak"), "is_uroman": (False, "the transliteration of uroman")}
"""transformers' default of each setting that needs another program, and its purpose."""


def unsupported_reason(settings: Mapping[str, JsonValue]) -> str | None:
    """Returns why texts cannot be converted to tokens without other programs, or None.

    Args:
        settings: the content of a `tokenizer_config.json`.
    """
    for name, (default, purpose) in _NEEDS.items():
        if settings.get(name, default):
            return (
                f"needs {purpose} ({name} in tokenizer_config.json), which is not supported: use a model that reads "
                "characters, such as facebook/mms-tts-eng"
            )
    return None
