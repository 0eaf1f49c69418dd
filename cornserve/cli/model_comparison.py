"""Chats that compare the paths of a model with vLLM, and the comparison of their tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from random import Random
from typing import TYPE_CHECKING, Any, Final, TypedDict

from cornserve.bench.media_files import audio_url, image_url, video_url

if TYPE_CHECKING:
    from cornserve_tasklib.media import Modality

TOKENS: Final = 16
"""The length of each response."""

LOGPROB_BOUND: Final = 0.25
"""The maximum difference of the log probabilities of a token, if the model does not run in float32."""

_IMAGE_SIZES: Final = ((224, 168), (160, 200))
_AUDIO_SECONDS: Final = (1.5, 0.8)
_VIDEO_SIZES: Final = ((112, 112), (84, 112))
_VIDEO_FRAMES: Final = 8
_VIDEO_SECONDS: Final = 4.0

Chat = dict[str, Any]
"""The body of a chat."""


class ChatOutput(TypedDict, total=False):
    """The tokens of a response with their log probabilities, or the reason why the chat was refused."""

    tokens: list[int]
    logprobs: list[float]
    error: str


class DirectOutputs(TypedDict):
    """The outputs of vLLM alone."""

    dtype: str
    """The type of the weights, such as bfloat16."""
    outputs: list[ChatOutput]


class Verdict(StrEnum):
    EQUAL = "equal"
    CLOSE = "close"
    REFUSED = "refused"
    """Cornserve and vLLM refuse the chat."""
    SKIPPED = "skipped"
    DIFFERENT = "different"


@dataclass(frozen=True, slots=True)
class Comparison:
    """The comparison of a chat on a path with vLLM. `details` are for users."""

    path: str
    chat: str
    verdict: Verdict
    details: str


def comparison_chats(modalities: Sequence[Modality]) -> dict[str, Chat]:
    """Returns chats without media, with one and two media of each modality, and with all modalities, by description."""
    random = Random(0)
    media = {modality: _media(modality, random) for modality in modalities}
    contents: dict[str, list[Chat]] = {"text": []}
    for modality, parts in media.items():
        contents[f"1 {modality}"] = parts[:1]
        contents[f"2 {modality}s"] = parts
    if len(media) > 1:
        contents[" + ".join(media)] = [part for parts in media.values() for part in parts[:1]]
    return {name: _chat(parts) for name, parts in contents.items()}


def compare(path: str, chat: str, expected: ChatOutput, found: ChatOutput, dtype: str) -> Comparison:
    """Compares the output of a path with that of vLLM, whose weights have this type."""

    def result(verdict: Verdict, details: str) -> Comparison:
        return Comparison(path, chat, verdict, details)

    if "error" in expected and "error" in found:
        return result(Verdict.REFUSED, f"vLLM refuses it, too: {found['error']}")
    if "error" in expected:
        return result(Verdict.DIFFERENT, f"only vLLM refuses it: {expected['error']}")
    if "error" in found:
        return result(Verdict.DIFFERENT, f"vLLM does not refuse it: {found['error']}")
    number = len(expected["tokens"])
    same = _equal_tokens(expected["tokens"], found["tokens"])
    if dtype == "float32":
        if same == number == len(found["tokens"]):
            return result(Verdict.EQUAL, f"{number} tokens are equal")
        return result(Verdict.DIFFERENT, f"the tokens differ from position {same}")
    if len(found["tokens"]) < number:
        return result(Verdict.DIFFERENT, f"{len(found['tokens'])} of {number} tokens are generated")
    # The first token that differs has almost the same probability as the one of vLLM.
    pairs = zip(expected["logprobs"][: same + 1], found["logprobs"][: same + 1], strict=False)
    largest = max((abs(ours - theirs) for theirs, ours in pairs), default=0.0)
    details = f"{same} of {number} tokens are equal, and the log probabilities differ by up to {largest:.2g}"
    return result(Verdict.CLOSE if largest <= LOGPROB_BOUND else Verdict.DIFFERENT, details)


def _equal_tokens(first: Sequence[int], second: Sequence[int]) -> int:
    """Returns the number of equal tokens at the beginning."""
    return next(
        (number for number, (a, b) in enumerate(zip(first, second, strict=False)) if a != b),
        min(len(first), len(second)),
    )


def _chat(parts: Sequence[Chat]) -> Chat:
    content = [*parts, {"type": "text", "text": "Describe the corn field at noon, and count to ten."}]
    return {
        "messages": [{"role": "user", "content": content}],
        "temperature": 0,
        "max_tokens": TOKENS,
        "ignore_eos": True,
        "logprobs": True,
    }


def _media(modality: Modality, random: Random) -> list[Chat]:
    """Returns two media as parts of a message."""
    return [{"type": f"{modality}_url", f"{modality}_url": {"url": url}} for url in _urls(modality, random)]


def _urls(modality: Modality, random: Random) -> list[str]:
    match modality:
        case "image":
            return [image_url(width, height, random) for width, height in _IMAGE_SIZES]
        case "audio":
            return [audio_url(seconds, random) for seconds in _AUDIO_SECONDS]
        case "video":
            return [video_url(*size, _VIDEO_FRAMES, _VIDEO_SECONDS, random) for size in _VIDEO_SIZES]
