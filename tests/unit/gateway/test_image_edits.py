"""`/v1/images/edits`, through the official client and raw forms."""

from __future__ import annotations

from base64 import b64decode
from io import BytesIO
from typing import Any

import httpx2 as httpx
import PIL.Image
import pytest
import pytest_asyncio
from openai import AsyncOpenAI
from openai.types import ImageEditCompletedEvent, ImageEditPartialImageEvent

from cornserve.gateway.endpoints.openai.images import EditImageForm
from cornserve.gateway.endpoints.read_form import Upload
from tests.unit.gateway.conftest import Deploy
from tests.unit.gateway.refused_bodies import assert_refused, refusal
from tests.unit.gateway.sources import PAINTER, RETOUCHER

EDITS = "/v1/images/edits"


def picture(format: str = "PNG") -> bytes:
    file = BytesIO()
    PIL.Image.new("RGB", (12, 8)).save(file, format)
    return file.getvalue()


@pytest_asyncio.fixture(scope="module", autouse=True, loop_scope="module")
async def retoucher(deploy_for_module: Deploy) -> None:
    await deploy_for_module(RETOUCHER)


async def test_the_official_client_gets_images_of_the_actual_size(openai: AsyncOpenAI) -> None:
    given: dict[str, Any] = {"model": "retoucher", "prompt": "more corn", "extra_body": {"seed": 7}}
    single = await openai.images.edit(**given, image=picture("JPEG"), output_format="webp")
    several = await openai.images.edit(**given, image=[picture()])

    assert single.data is not None
    assert several.data is not None
    found = [b64decode(response.data[0].b64_json or "").decode() for response in (single, several) if response.data]
    assert found == ["JPEG:12x8 prompt=more corn seed=7 output_format=webp", "PNG:12x8 prompt=more corn seed=7"]
    assert (single.size, single.output_format) == ("96x64", "webp")


async def test_a_stream_has_the_events_of_the_official_client(openai: AsyncOpenAI) -> None:
    stream = await openai.images.edit(
        model="retoucher", image=picture(), prompt="corn", size="1024x1024", partial_images=1, stream=True
    )
    *previews, last = [event async for event in stream]

    assert {type(event) for event in previews} == {ImageEditPartialImageEvent}
    assert [event.b64_json for event in previews] == ["PNG:12x8", "prompt=corn", "size=1024x1024", "partial_images=1"]
    assert isinstance(last, ImageEditCompletedEvent)
    assert (last.type, last.size) == ("image_edit.completed", "96x64")


@pytest.mark.parametrize(
    ("fields", "files", "param", "message"),
    [
        ({}, {}, "image", "image: missing: send one file, as `image` or as `image[]`"),
        ({"image": "x"}, {}, "image", "must be a file"),
        ({}, {"image": b"no image"}, "image", "image: "),
        ({}, {"image": picture()[:40]}, "image", "image: "),
        ({}, {"image": picture(), "mask": picture()}, "mask", "unsupported field: 'mask'"),
        ({"input_fidelity": "high"}, {"image": picture()}, "input_fidelity", "unsupported field: 'input_fidelity'"),
        ({"n": "100"}, {"image": picture()}, "n", "less than or equal to 10"),
        ({"partial_images": "2"}, {"image": picture()}, "partial_images", "is set, but stream is false"),
    ],
)
async def test_an_invalid_form_is_a_400_that_names_the_field(
    gateway: httpx.AsyncClient, fields: dict[str, str], files: dict[str, bytes], param: str | None, message: str
) -> None:
    form = {"model": "retoucher", "prompt": "corn", **fields}
    named = {name: (f"{name}.png", content) for name, content in files.items()}
    response = await gateway.post(EDITS, data=form, files=named or {"other": ("", b"")})

    assert_refused(response, param, message)


@pytest.mark.parametrize(
    ("fields", "param", "message"),
    [
        ({"size": "7x7"}, "size", "must be WIDTHxHEIGHT, both multiples of 16"),
        ({"num_inference_steps": "0"}, "num_inference_steps", "greater than or equal to 1"),
        ({"output_format": "gif"}, "output_format", "'png', 'jpeg' or 'webp'"),
    ],
)
def test_an_invalid_form_names_the_field(fields: dict[str, Any], param: str, message: str) -> None:
    form: dict[str, Any] = {"model": "retoucher", "prompt": "corn", "image": Upload(memoryview(picture()))}
    error = refusal(EditImageForm.model_validate, form | fields)

    assert message in error.message
    assert error.param == param


async def test_apps_that_draw_and_apps_that_edit_name_each_others_operations(
    gateway: httpx.AsyncClient, deploy: Deploy
) -> None:
    await deploy(PAINTER)
    form = {"model": "painter", "prompt": "corn"}
    edit = await gateway.post(EDITS, data=form, files={"image": ("a.png", picture())})
    drawing = await gateway.post("/v1/images/generations", json={"model": "retoucher", "prompt": "corn"})

    assert "call it with POST /v1/images/generations" in edit.json()["error"]["message"]
    assert "call it with POST /v1/images/edits" in drawing.json()["error"]["message"]
