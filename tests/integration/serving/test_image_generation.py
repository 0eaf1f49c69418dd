"""A deployed Qwen-Image, through the official client."""

from __future__ import annotations

from base64 import b64decode
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path
from typing import Any

import PIL.Image
import pytest
from openai import BadRequestError, OpenAI

from tests.integration.serving.conftest import CommandLine
from tests.integration.serving.image_chats import sum_metric
from tests.waiting import wait_until

NAME = "painter"
MAX_STEPS = 150

SIZE = ["--option", "image_generator.max_pixels=16384", "--option", f"image_generator.max_steps={MAX_STEPS}"]

SPLIT = """
from cornserve import App
from cornserve_tasklib import GenerateImages, ImageGeneratorOptions

options = ImageGeneratorOptions(gpus=0)
app = App(name="split-painter", paths=[GenerateImages(model_id={model!r}, options=options, split=True)])
"""


@pytest.fixture(scope="module", autouse=True)
def painter(cornserve: CommandLine, tiny_qwenimage: Path) -> None:
    deployed = cornserve.run(
        "deploy",
        str(tiny_qwenimage),
        "--name",
        NAME,
        "--option",
        "max_pixels=16384",
        "--option",
        f"max_steps={MAX_STEPS}",
    )
    assert deployed.returncode == 0, deployed.stderr


@pytest.fixture(scope="module")
def split(cornserve: CommandLine, tiny_qwenimage: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The app of the same model with separate components."""
    file = tmp_path_factory.mktemp("split") / "split.py"
    file.write_text(SPLIT.format(model=str(tiny_qwenimage)))
    deployed = cornserve.run("deploy", str(file))
    assert deployed.returncode == 0, deployed.stderr
    return "split-painter"


def generate(
    client: OpenAI, prompt: str, seed: int, n: int = 1, model: str = NAME, true_cfg_scale: float = 4
) -> list[bytes]:
    response = client.images.generate(
        model=model,
        prompt=prompt,
        n=n,
        size="96x64",
        extra_body={"seed": seed, "num_inference_steps": 4, "true_cfg_scale": true_cfg_scale},
    )
    assert response.data is not None
    return [b64decode(image.b64_json or "") for image in response.data]


def events(client: OpenAI, model: str, **fields: object) -> list[Any]:
    with client.images.generate(model=model, prompt="corn", size="96x64", stream=True, extra_body=fields) as stream:
        return list(stream)


@pytest.mark.slow
def test_concurrent_images_equal_those_generated_alone(client: OpenAI) -> None:
    prompts = [f"{color} corn" for color in ("red", "green", "blue", "yellow")]
    alone = [generate(client, prompt, seed) for seed, prompt in enumerate(prompts)]

    with ThreadPoolExecutor(len(prompts)) as threads:
        together = list(threads.map(generate, [client] * len(prompts), prompts, range(len(prompts))))

    assert together == alone
    assert len({image for (image,) in alone}) == len(prompts)
    assert {PIL.Image.open(BytesIO(image)).size for (image,) in alone} == {(96, 64)}


@pytest.mark.slow
def test_several_images_have_the_following_seeds(client: OpenAI) -> None:
    assert generate(client, "corn", 5, n=2) == [*generate(client, "corn", 5), *generate(client, "corn", 6)]


@pytest.mark.parametrize(
    ("fields", "param", "message"),
    [
        ({"size": "256x256"}, "size", "65536 pixels: this app allows at most 16384"),
        ({"num_inference_steps": 151}, "num_inference_steps", "at most 150 for this app"),
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


@pytest.mark.slow
def test_separate_components_draw_the_same_images(client: OpenAI, split: str) -> None:
    """The requests run in one batch, with guidance and without."""
    cases = [("red corn", 1.0), ("green corn", 4.0), ("blue corn", 1.0), ("yellow corn", 4.0)]
    expected = [generate(client, prompt, 20, 2, true_cfg_scale=scale) for prompt, scale in cases]

    with ThreadPoolExecutor(len(cases)) as threads:
        found = [
            threads.submit(generate, client, prompt, 20, 2, split, true_cfg_scale=scale) for prompt, scale in cases
        ]

    assert [images.result() for images in found] == expected


@pytest.mark.slow
def test_separate_components_stream_the_same_previews(client: OpenAI, split: str) -> None:
    whole, separate = (
        [(event.type, getattr(event, "step", None), getattr(event, "b64_json", None)) for event in found]
        for found in (
            events(client, app, seed=9, partial_images=2, num_inference_steps=6, progress=True) for app in (NAME, split)
        )
    )

    assert [kind for kind, *_ in whole].count("image_generation.partial_image") == 2
    assert separate == whole


def test_separate_components_stream_their_progress(client: OpenAI, split: str) -> None:
    (expected,) = generate(client, "corn", 9)

    *steps, last = events(client, split, seed=9, num_inference_steps=4, progress=True)

    assert [(event.type, event.step) for event in steps] == [("image_generation.progress", n) for n in (1, 2, 3, 4)]
    assert b64decode(last.b64_json) == expected
    assert last.usage.output_tokens == 24


def test_a_stream_ends_with_the_image_of_a_whole_response(client: OpenAI) -> None:
    (expected,) = generate(client, "corn", 9)

    found = events(client, NAME, partial_images=1, seed=9, num_inference_steps=4, progress=True)

    progress, preview = "image_generation.progress", "image_generation.partial_image"
    assert [event.type for event in found] == [
        *(progress, progress, preview, progress, progress, "image_generation.completed")
    ]
    assert [event.step for event in found if event.type == progress] == [1, 2, 3, 4]
    assert PIL.Image.open(BytesIO(b64decode(found[2].b64_json))).size == (96, 64)
    assert b64decode(found[-1].b64_json) == expected


def test_a_disconnect_stops_the_steps(client: OpenAI, cornserve: CommandLine) -> None:
    before = _metric(cornserve, "steps_total")

    with client.images.generate(
        model=NAME,
        prompt="corn",
        size="128x128",
        stream=True,
        extra_body={"num_inference_steps": MAX_STEPS, "progress": True},
    ) as stream:
        next(iter(stream))
        assert _metric(cornserve, "running_images") == 1
    wait_until(lambda: _metric(cornserve, "running_images") == 0)

    assert _metric(cornserve, "steps_total") - before < MAX_STEPS


def _metric(cornserve: CommandLine, name: str) -> float:
    """Returns a metric of the executor."""
    return sum_metric(cornserve, NAME, f"cornserve_image_generator_{name}")


@pytest.mark.slow
def test_a_chat_draws_or_writes_as_the_language_model_decides(
    cornserve: CommandLine, client: OpenAI, model: str, tiny_qwenimage: Path, tmp_path: Path
) -> None:
    language_model = str(cornserve.home.models / model)
    artist = cornserve.json("deploy", language_model, "--name", "artist", "--drawer", str(tiny_qwenimage), *SIZE)
    file = tmp_path / "fox.png"

    drawn = cornserve.run("chat", "artist", "Draw a red fox.", "--temperature", "0", "--save", str(file))
    written = client.chat.completions.create(
        model="artist", messages=[{"role": "user", "content": "What is 2 plus 2?"}], max_tokens=8, temperature=0
    )

    assert drawn.returncode == 0, drawn.stderr
    assert drawn.stdout.splitlines()[-1] == str(file)
    with PIL.Image.open(file) as image:
        assert (image.format, image.size) == ("PNG", (128, 128))
    assert written.choices[0].message.content
    assert "images" not in written.choices[0].message.to_dict()
    assert [group["apps"] for group in artist["status"]["groups"]] == [2, 2]  # shared with the apps of both models
    assert f"draws with: {tiny_qwenimage}" in cornserve.run("status", "artist").stdout
