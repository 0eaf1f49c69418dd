"""A multimodal model served by a complete instance. All paths give the same response."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
from openai import BadRequestError, OpenAI
from PIL import Image

from tests.chaos.form import by_form, seed
from tests.chaos.report import FaultRecorder, FaultResult
from tests.integration.cli.cli_instance import SMALL_KV_CACHE
from tests.integration.serving.conftest import CommandLine
from tests.integration.serving.image_chats import (
    CHATS,
    TOKENS,
    ask,
    image_part,
    noise_part,
    sum_metric,
    text_part,
    video_part,
)
from tests.integration.serving.shared_encoder import are_encoded_together, encoder_users
from tests.video import video_file
from tests.waiting import until

pytestmark = pytest.mark.timeout(400)

PATHS = ("monolith", "e-l", "e-el", "e-p-d", "e-pd")

SCHEMA = {
    "type": "object",
    "properties": {"ok": {"type": "boolean"}},
    "required": ["ok"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def apps(cornserve: CommandLine, tiny_qwen25vl: Path) -> Iterator[Mapping[str, str]]:
    """An app of the model for each path."""
    apps = {path: f"vl-{path}" for path in PATHS}
    try:
        for path, app in apps.items():
            deployed = cornserve.run("deploy", str(tiny_qwen25vl), "--name", app, "--share", path, *SMALL_KV_CACHE)
            assert deployed.returncode == 0, deployed.stderr
        yield apps
    finally:
        for app in apps.values():
            cornserve.run("delete", app)


@pytest.mark.parametrize("chat", CHATS)
def test_all_paths_give_the_same_tokens(cornserve: CommandLine, apps: Mapping[str, str], chat: str) -> None:
    results = {path: ask(cornserve, app, CHATS[chat]) for path, app in apps.items()}

    assert len(results["monolith"]) == TOKENS
    assert results == dict.fromkeys(PATHS, results["monolith"])


def test_another_image_changes_the_tokens(cornserve: CommandLine, apps: Mapping[str, str]) -> None:
    for app in apps.values():
        assert ask(cornserve, app, CHATS["one image"]) != ask(cornserve, app, CHATS["another image"])


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"n": 3, "temperature": 1.0, "seed": 7},
        {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": SCHEMA}}},
    ],
)
def test_all_paths_give_the_same_choices_with_options(
    client: OpenAI, apps: Mapping[str, str], options: dict[str, Any]
) -> None:
    def choices(app: str) -> list[Any]:
        messages: Any = [{"role": "user", "content": CHATS["several images of different sizes"]}]
        fields = {"temperature": 0, "max_tokens": TOKENS} | options
        completion = client.chat.completions.create(model=app, messages=messages, **fields)
        return [choice.model_dump() for choice in completion.choices]

    results = {path: choices(app) for path, app in apps.items()}

    assert len(results["monolith"]) == options.get("n", 1)
    assert results == dict.fromkeys(PATHS, results["monolith"])


@pytest.mark.slow
def test_concurrent_requests_get_the_same_tokens_as_alone(cornserve: CommandLine, apps: Mapping[str, str]) -> None:
    requests = [(app, content) for app in apps.values() for content in CHATS.values()] * 2
    alone = [ask(cornserve, app, content) for app, content in requests]

    with ThreadPoolExecutor(len(requests)) as pool:
        together = list(pool.map(lambda request: ask(cornserve, *request), requests))

    assert together == alone


@pytest.mark.chaos
async def test_cancelled_requests_affect_no_others_and_leave_nothing(
    cornserve: CommandLine, apps: Mapping[str, str], record_fault: FaultRecorder
) -> None:
    requests, new_images, at_once = by_form(short=(40, 2, 16), full=(500, 20, 32))
    order = random.Random(seed())
    contents = [*CHATS.values(), *([noise_part(order.randrange(1 << 32), 140, 84)] for _ in range(new_images))]
    expected = [await asyncio.to_thread(ask, cornserve, apps["monolith"], content) for content in contents]
    pending = iter(range(requests))

    async def send_some(client: httpx.AsyncClient) -> list[bool]:
        """Returns for each request whether it was served; otherwise it was cancelled."""
        return [await send(client) for _ in pending]

    async def send(client: httpx.AsyncClient) -> bool:
        content = order.randrange(len(contents))
        patience = order.choice((order.uniform(0, 1), 120))
        body = {"messages": [{"role": "user", "content": contents[content]}], "temperature": 0, "max_tokens": TOKENS}
        try:
            async with asyncio.timeout(patience):
                response = await client.post(f"/v1/apps/{order.choice([*apps.values()])}/invoke", json=body)
        except TimeoutError:
            assert patience < 120
            return False
        assert response.status_code == 200, response.text
        assert response.json()["token_ids"] == expected[content]
        return True

    async with httpx.AsyncClient(base_url=cornserve.url, timeout=None) as client:
        served = [
            ended for some in await asyncio.gather(*(send_some(client) for _ in range(at_once))) for ended in some
        ]
    await until(lambda: all(sum_metric(cornserve, app, RUNNING) == 0 for app in apps.values()))
    await until(lambda: all(sum_metric(cornserve, app, HELD) == 0 for app in apps.values()))

    outcome = f"{sum(served)} complete, others cancelled"
    record_fault(FaultResult("cancelled multimodal request", served.count(False), requests, outcome, leaks=0))


def test_a_response_about_an_image_can_be_streamed(client: OpenAI, apps: Mapping[str, str]) -> None:
    content: Any = CHATS["one image"]
    create = client.chat.completions.create
    question: Any = [{"role": "user", "content": content}]
    unstreamed = create(model=apps["e-l"], messages=question, temperature=0, max_tokens=TOKENS)
    chunks = create(model=apps["e-l"], messages=question, temperature=0, max_tokens=TOKENS, stream=True)

    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == unstreamed.choices[0].message.content


def test_apps_with_the_same_encoder_share_its_executors_and_batches(
    cornserve: CommandLine, apps: Mapping[str, str]
) -> None:
    users = [apps[path] for path in ("e-el", "e-l", "e-p-d", "e-pd")]
    assert encoder_users(cornserve, apps["e-l"]) == [sorted(users)]
    assert are_encoded_together(
        cornserve,
        [apps["e-l"], apps["e-el"]],
        "image",
        lambda seed: noise_part(100 + seed, 336, 336),
        lambda app, part: ask(cornserve, app, [part], max_tokens=1),
    )


def test_a_request_without_images_uses_no_encoder(cornserve: CommandLine, apps: Mapping[str, str]) -> None:
    before = sum_metric(cornserve, apps["e-l"], IMAGES)

    ask(cornserve, apps["e-l"], CHATS["text only"])

    assert sum_metric(cornserve, apps["e-l"], IMAGES) == before


def test_a_language_model_without_an_encoder_does_not_load_its_weights(
    cornserve: CommandLine, apps: Mapping[str, str]
) -> None:
    def has_no_encoder(app: str) -> bool:
        return (
            re.search(r"(visual|vision_tower) has 0 parameters", cornserve.run("logs", app, "--lines", "10000").stdout)
            is not None
        )

    assert has_no_encoder(apps["e-l"])
    assert not has_no_encoder(apps["monolith"])


def png(width: int = 64, height: int = 64, **options: Any) -> bytes:
    file = BytesIO()
    Image.effect_noise((width, height), 50).convert("RGB").save(file, "PNG", **options)
    return file.getvalue()


@pytest.mark.parametrize("path", PATHS)
def test_a_truncated_image_is_a_400(cornserve: CommandLine, client: OpenAI, apps: Mapping[str, str], path: str) -> None:
    content: Any = [text_part("What is this?"), noise_part(1), image_part(_truncate_pixels(png()))]

    with pytest.raises(BadRequestError) as rejected:
        client.chat.completions.create(model=apps[path], messages=[{"role": "user", "content": content}])

    error: Any = rejected.value.body
    param = "messages[0].content[2].image_url"
    assert error["message"].startswith(f"{param}: the PNG image cannot be decoded: ")
    assert (error["param"], error["code"]) == (param, "invalid_image")


@pytest.mark.parametrize("path", PATHS)
def test_options_of_media_are_used_or_refused_by_name(client: OpenAI, apps: Mapping[str, str], path: str) -> None:
    def prompt_tokens(**options: Any) -> int:
        content: Any = [noise_part(1, 112, 112), video_part(20, 96, 64)]
        completion = client.chat.completions.create(
            model=apps[path], messages=[{"role": "user", "content": content}], max_tokens=1, extra_body=options
        )
        assert completion.usage is not None
        return completion.usage.prompt_tokens

    usual = prompt_tokens()
    assert prompt_tokens(media_io_kwargs={"video": {"max_frames": 2}}) < usual
    assert prompt_tokens(media_io_kwargs={"video": {"num_frames": 2}}) == usual
    assert prompt_tokens(mm_processor_kwargs={"max_pixels": 4000}) < usual
    for field, options, option in (
        ("media_io_kwargs", {"video": {"num_frames": 0}}, "video.num_frames"),
        ("mm_processor_kwargs", {"max_pixels": 1 << 30}, "max_pixels"),
    ):
        with pytest.raises(BadRequestError) as rejected:
            prompt_tokens(**{field: options})
        assert (rejected.value.param, rejected.value.code) == (f"{field}.{option}", "invalid_value")


@pytest.mark.slow
def test_options_of_media_of_a_deployment_are_defaults_of_its_chats(
    cornserve: CommandLine, apps: Mapping[str, str], tiny_qwen25vl: Path, tmp_path: Path
) -> None:
    clip = tmp_path / "clip.mp4"
    clip.write_bytes(video_file(count=20, width=96, height=64))
    frames, pixels = '{"video": {"max_frames": 4}}', '{"max_pixels": 4000}'

    def prompt_tokens(app: str, *options: str) -> int:
        response = cornserve.json("chat", app, "?", "--video", str(clip), "--max-tokens", "1", *options)
        return int(response["usage"]["prompt_tokens"])

    chosen = ["--media-io-kwargs", frames, "--mm-processor-kwargs", pixels]
    deployed = cornserve.run(
        "deploy", str(tiny_qwen25vl), "--name", "vl-thrifty", "--share", "e-l", *chosen, *SMALL_KV_CACHE
    )
    try:
        assert deployed.returncode == 0, deployed.stderr
        usual = prompt_tokens(apps["e-l"])
        assert prompt_tokens("vl-thrifty") == prompt_tokens(apps["e-l"], *chosen) < usual
        assert prompt_tokens("vl-thrifty", "--media-io-kwargs", '{"video": {"max_frames": 2}}') < usual
        assert "media options: max_frames=4,max_pixels=4000" in cornserve.run("status", "vl-thrifty").stdout
        unknown = cornserve.run("deploy", str(tiny_qwen25vl), "--mm-processor-kwargs", '{"max_pixels": 0}')
        assert unknown.stderr.splitlines() == [
            "error: --mm-processor-kwargs: max_pixels: must be greater than or equal to 1, not 0"
        ]
    finally:
        cornserve.run("delete", "vl-thrifty")


def _truncate_pixels(content: bytes) -> bytes:
    """Removes pixels from a PNG file, whose chunks remain valid: only decoding detects the error."""
    import struct
    import zlib

    start = content.index(b"IDAT")
    (length,) = struct.unpack(">I", content[start - 4 : start])
    pixels = zlib.compress(zlib.decompress(content[start + 4 : start + 4 + length])[:200])
    chunk = b"IDAT" + pixels
    rest = content[start + 8 + length :]
    return content[: start - 4] + struct.pack(">I", len(pixels)) + chunk + struct.pack(">I", zlib.crc32(chunk)) + rest


def test_no_shared_memory_is_held_after_the_last_response(cornserve: CommandLine, apps: Mapping[str, str]) -> None:
    asyncio.run(until(lambda: sum_metric(cornserve, apps["e-l"], HELD) == 0))


IMAGES = 'cornserve_encoder_items_total{modality="image"}'
RUNNING = "cornserve_executor_invocations_running"
HELD = 'cornserve_transport_slab_bytes{state="held"}'
