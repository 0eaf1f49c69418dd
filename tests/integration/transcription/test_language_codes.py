"""The names of languages."""

from __future__ import annotations

from cornserve_tasklib.language_codes import LANGUAGE_CODES


def test_the_names_of_languages_are_those_of_whisper() -> None:
    from transformers.models.whisper.tokenization_whisper import TO_LANGUAGE_CODE

    assert LANGUAGE_CODES == TO_LANGUAGE_CODE
