"""A deployed Qwen-Image, through the official client."""

from __future__ import annotations

from base64 import b64decode
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path

import PIL.Image
import pytest
from openai import BadRequestError, OpenAI

from tests.integration.serving.conftest import CommandLine

NAME = "painter"


@pytest.fixture(scope="module", autouse=True)
def painter(cornserve: CommandLine, tiny_qwenimage: Path) -> None:
    deployed = cornserve.run(
        "deploy", str(tiny_qwenimage), "--name", NAME, "--option", "max_pixels=16384", "--option", "max_steps=10"
    )
    assert deployed.returncode == 0, deployed.stderr


def generate(client: OpenAI, prompt: str, seed: int, n: int = 1) -> list[bytes]:
    response = client.images.generate(
        model=NAME,
        prompt=prompt,
        n=n,
        size="96x64",
        extra_body={"seed": seed, "num_inference_steps": 4},
    )
    assert response.data is not None
    return [b64decode(image.b64_json or "") for image in response.data]


def test_concurrent_images_equal_those_generated_alone(client: OpenAI) -> None:
    prompts = [f"{color} corn" for color in ("red", "green", "blue", "yellow")]
    alone = [generate(client, prompt, seed) for seed, prompt in enumerate(prompts)]

    with ThreadPoolExecutor(len(prompts)) as threads:
        together = list(threads.map(generate, [client] * len(prompts), prompts, range(len(prompts))))

    assert together == alone
    assert len({image for (image,) in alone}) == len(prompts)
    assert {PIL.Image.open(BytesIO(image)).size for (image,) in alone} == {(96, 64)}


def test_several_images_have_the_following_seeds(client: OpenAI) -> None:
    assert generate(client, "corn", 5, n=2) == [*generate(client, "corn", 5), *generate(client, "corn", 6)]


@pytest.mark.parametrize(
    ("fields", "param", "message"),
    [
        ({"size": "256x256"}, "size", "65536 pixels: this app allows at most 16384"),
        ({"num_inference_steps": 11}, "num_inference_steps", "at most 10 for this app"),
        ({"prompt": "x" * 1100}, "prompt", "the model reads at most 1024"),
    ],
)
def test_a_limit_of_the_app_is_a_400_that_names_the_field(
    client: OpenAI, fields: dict[str, object], param: str, message: str
) -> None:
    valid = {"model": NAME, "prompt": "corn", "size": "64x64", "num_inference_steps": 2}

    with pytest.raises(BadRequestError, match=message) as caught:
        client.post("/images/generations", body=valid | fields, cast_to=object)

    assert (caught.value.param, caught.value.code) == (param, "invalid_value")
