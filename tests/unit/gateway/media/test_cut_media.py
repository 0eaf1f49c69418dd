"""Cutting images out of JSON keeps the request's meaning, whatever the JSON looks like."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable

import pytest

from cornserve.app.media_slots import find_media_slots
from cornserve.gateway.endpoints.anthropic.message_request import CreateMessageRequest
from cornserve.gateway.media.cut_media import MAX_CANDIDATES, MIN_CUT_BYTES, cut_media, find_similar_texts, insert_media
from cornserve.gateway.media.data_url import decode_content, max_decoded_size
from cornserve_tasklib import ChatRequest

CONTENTS = [bytes([number]) * 3 * MIN_CUT_BYTES + b"\xfb\xef\xbe\xff\xff\xff" for number in range(3)]
URLS = [f"data:image/png;base64,{b64encode(content).decode()}" for content in CONTENTS]
LIMIT = 10_000


def part(url: str) -> dict[str, object]:
    return {"type": "image_url", "image_url": {"url": url}}


def chat(*parts: object, **fields: object) -> dict[str, object]:
    return {"messages": [{"role": "user", "content": list(parts)}], **fields}


def message(role: str, *blocks: object) -> dict[str, object]:
    return {"role": role, "content": list(blocks)}


def decoded(body: bytes) -> list[bytes]:
    """Returns the images of a request that is parsed without them."""
    cut = cut_media(body, LIMIT)
    assert cut is not None
    request = ChatRequest.model_validate_json(cut.json)
    slots = find_media_slots(request)
    assert not find_similar_texts(slots, cut.media)
    insert_media(slots, cut.media)
    assert all(len(content) <= max_decoded_size(slot.url) for slot, content in zip(slots, CONTENTS, strict=False))
    return [decode_content(slot.url) for slot in slots]


def test_each_image_keeps_its_place() -> None:
    body = json.dumps(chat({"type": "text", "text": "hello"}, *map(part, URLS))).encode()

    assert decoded(body) == CONTENTS


@pytest.mark.parametrize(
    "write", [lambda body: json.dumps(body, indent=4), lambda body: json.dumps(body, separators=(",", ":"))]
)
def test_white_space_and_further_fields_do_not_matter(write: Callable[[object], str]) -> None:
    first = {"image_url": {"detail": "high", "url": URLS[0]}, "type": "image_url"}
    last = {"type": "image_url", "image_url": {"url": URLS[1], "detail": "auto"}}

    assert decoded(write(chat(first, last)).encode()) == CONTENTS[:2]


@pytest.mark.parametrize(("character", "escape"), [("/", r"\/"), ("+", r"\u002B"), ("+", r"\u002b"), ("/", r"\u002f")])
def test_base64_may_be_escaped(character: str, escape: str) -> None:
    body = json.dumps(chat(part(URLS[0])))
    head, url = body.split("base64,")
    assert character in url

    assert decoded(f"{head}base64,{url.replace(character, escape)}".encode()) == CONTENTS[:1]


def test_slashes_may_be_escaped_as_in_php() -> None:
    body = json.dumps(chat(*map(part, URLS))).replace("/", r"\/")

    assert decoded(body.encode()) == CONTENTS


@pytest.mark.parametrize("fields", [{"detail": "HIGH-x"}, {"detail": None, "uuid": 'a"b/c', "num_frames": 1.5e3}])
def test_any_fields_may_precede_the_url(fields: dict[str, object]) -> None:
    parts = [{"type": "image_url", "image_url": {**fields, "url": url}} for url in URLS]
    cut = cut_media(json.dumps(chat(*parts)).encode(), LIMIT)

    assert cut is not None
    assert len(cut.media) == len(URLS)


@pytest.mark.parametrize("escape", ["/", r"\/"])
def test_images_of_anthropics_api_are_cut_out(escape: str) -> None:
    first, second, third = (b64encode(content).decode() for content in CONTENTS)
    use = {"type": "tool_use", "id": "call", "name": "see", "input": {}}
    result = {
        "type": "tool_result",
        "tool_use_id": "call",
        "content": [{"type": "image", "source": {"data": second, "type": "base64"}}],
    }
    last = {"source": {"type": "base64", "data": third, "media_type": "image/png"}, "type": "image"}
    messages = [
        message("user", {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": first}}),
        message("assistant", use),
        message("user", result, last),
    ]
    body = json.dumps({"model": "m", "max_tokens": 1, "messages": messages}).replace("/", escape)
    cut = cut_media(body.encode(), LIMIT)

    assert cut is not None
    slots = CreateMessageRequest.model_validate_json(cut.json).media
    insert_media(slots, cut.media)
    assert [decode_content(slot.url) for slot in slots] == CONTENTS


def test_short_and_fetched_images_stay_in_the_json() -> None:
    body = json.dumps(
        chat(part("data:image/png;base64,AAAA"), part("https://example.com/" + "a" * MIN_CUT_BYTES))
    ).encode()
    cut = cut_media(body, 1_000_000)

    assert cut is not None
    assert (cut.json, cut.media) == (body, {})


@pytest.mark.parametrize(
    "similar",
    [
        {"chat_template_kwargs": {"image_url": {"url": URLS[0]}}},
        {"chat_template_kwargs": {'x"image_url': {"url": URLS[0]}}},
    ],
)
def test_an_image_elsewhere_is_not_mistaken_for_an_image_part(similar: dict[str, object]) -> None:
    body = json.dumps({**similar, **chat(part(URLS[1]))}).encode()
    first = cut_media(body, LIMIT)
    assert first is not None
    texts = find_similar_texts(find_media_slots(ChatRequest.model_validate_json(first.json)), first.media)

    cut = cut_media(body, len(URLS[0]) + LIMIT, texts)

    assert cut is not None
    request = ChatRequest.model_validate_json(cut.json)
    slots = find_media_slots(request)
    insert_media(slots, cut.media)
    assert [decode_content(slot.url) for slot in slots] == [CONTENTS[1]]
    assert request.chat_template_kwargs == similar["chat_template_kwargs"]


def test_a_text_that_quotes_json_is_not_cut() -> None:
    body = json.dumps(chat({"type": "text", "text": json.dumps(part(URLS[0]))})).encode()
    cut = cut_media(body, 1_000_000)

    assert cut is not None
    assert (cut.json, cut.media) == (body, {})


def test_a_reference_that_a_client_writes_is_not_replaced_twice() -> None:
    cut = cut_media(json.dumps(chat(part("data:image/png;base64,…0"), part(URLS[0]))).encode(), LIMIT)

    assert cut is not None
    slots = find_media_slots(ChatRequest.model_validate_json(cut.json))
    assert find_similar_texts(slots, cut.media) == {"data:image/png;base64,…0"}


@pytest.mark.parametrize(
    "body",
    [
        json.dumps(chat({"type": "text", "text": "x" * LIMIT})),
        json.dumps(chat(part(URLS[0]), {"type": "text", "text": "x" * LIMIT})),
        json.dumps(chat({"type": "text", "text": "x" * LIMIT}, part(URLS[0]))),
        "[" + '"image_url",' * (MAX_CANDIDATES + 1) + f'{{"image_url": {{"url": "{URLS[0]}"}}}}]',
    ],
)
def test_text_beyond_the_limit_is_refused(body: str) -> None:
    assert cut_media(body.encode(), LIMIT) is None


@pytest.mark.parametrize("end", ["", '"', "base64,"])
def test_a_truncated_body_is_left_to_the_json_parser(end: str) -> None:
    body = f'{{"messages": [{{"image_url": {{"url": "{URLS[0]}'.encode() + end.encode()
    cut = cut_media(body, 1_000_000)

    assert cut is not None
    assert b"".join(cut.media.values()) in body


@pytest.mark.parametrize("head", ["", "data:audio/wav;base64,", "DATA:audio/x-wav;Base64,"])
@pytest.mark.parametrize("order", ["data", "format"])
def test_audio_is_cut_out(order: str, head: str) -> None:
    audio = {"data": head + b64encode(CONTENTS[1]).decode(), "format": "wav"}
    sent = {"type": "input_audio", "input_audio": dict(sorted(audio.items(), reverse=order == "format"))}
    by_url = {"type": "audio_url", "audio_url": {"url": URLS[2]}}
    body = json.dumps(chat(part(URLS[0]), sent, by_url)).encode()

    assert decoded(body) == CONTENTS


def test_audio_whose_data_url_is_not_base64_is_not_cut() -> None:
    audio = {"data": "data:audio/wav," + "a" * MIN_CUT_BYTES, "format": "wav"}
    body = json.dumps(chat({"type": "input_audio", "input_audio": audio})).encode()
    cut = cut_media(body, 1_000_000)

    assert cut is not None
    assert (cut.json, cut.media) == (body, {})
