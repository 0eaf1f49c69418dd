"""A deployed VITS, through the official client and the command line."""

from __future__ import annotations

import io
import wave
from pathlib import Path
from typing import get_args

import av
import pytest
from openai import BadRequestError, OpenAI

from cornserve_tasklib.audio_format import AudioFormat
from tests.integration.serving.conftest import CommandLine
from tests.integration.serving.image_chats import sum_metric
from tests.waiting import wait_until

NAME = "speaker"
TEXT = "The corn is ripe. Is it tall?"


@pytest.fixture(scope="module", autouse=True)
def speaker(cornserve: CommandLine, tiny_vits: Path) -> None:
    deployed = cornserve.run("deploy", str(tiny_vits), "--name", NAME)
    assert deployed.returncode == 0, deployed.stderr


def speak(client: OpenAI, format: AudioFormat, text: str = TEXT) -> bytes:
    response = client.audio.speech.create(
        model=NAME, input=text, voice="default", response_format=format, extra_body={"seed": 7}
    )
    return response.content


def duration(file: bytes) -> float:
    with av.open(io.BytesIO(file), "r") as container:
        return sum(frame.samples / frame.sample_rate for frame in container.decode(audio=0))


def test_all_formats_contain_the_same_speech(client: OpenAI) -> None:
    files = {format: speak(client, format) for format in get_args(AudioFormat)}
    pcm = files.pop("pcm")

    assert files["wav"][44:] == pcm
    assert {format: duration(file) for format, file in files.items()} == pytest.approx(
        dict.fromkeys(files, len(pcm) / 2 / 16_000), abs=0.15
    )


def test_sentences_are_joined_without_gaps(client: OpenAI) -> None:
    first, rest = speak(client, "pcm", "The corn is ripe."), speak(client, "pcm")

    assert rest.startswith(first)
    assert len(rest) > len(first)


@pytest.mark.slow
def test_the_command_line_saves_a_file_with_its_length(cornserve: CommandLine, client: OpenAI, tmp_path: Path) -> None:
    file = tmp_path / "hello.wav"

    result = cornserve.run("speak", NAME, TEXT, "--seed", "7", "--save", str(file))

    assert (result.returncode, result.stdout) == (0, f"{file}\n"), result.stderr
    with wave.open(str(file)) as content:
        assert content.readframes(content.getnframes()) == speak(client, "pcm")


@pytest.mark.parametrize(
    ("fields", "param", "message"),
    [
        ({"voice": "alloy"}, "voice", "this model has no voice 'alloy': use default"),
        ({"input": "🌽"}, "input", "the model knows no character of the text: it reads abc"),
    ],
)
def test_what_the_model_cannot_speak_is_a_400_that_names_the_field(
    client: OpenAI, fields: dict[str, str], param: str, message: str
) -> None:
    with pytest.raises(BadRequestError, match=message) as caught:
        client.post("/audio/speech", body={"model": NAME, "input": TEXT} | fields, cast_to=object)

    assert (caught.value.param, caught.value.code) == (param, "invalid_value")


def test_a_disconnect_stops_after_the_sentence(client: OpenAI, cornserve: CommandLine) -> None:
    def metric(name: str) -> float:
        return sum_metric(cornserve, NAME, f"cornserve_text_to_speech_{name}")

    before = metric("sentences_total")

    with client.audio.speech.with_streaming_response.create(
        model=NAME, input="The corn is very ripe and very tall. " * 100, voice="default", speed=0.25
    ) as response:
        parts = response.iter_bytes()  # an iterator that is dropped closes the connection
        next(parts)
        assert metric("running_requests") == 1
    wait_until(lambda: metric("running_requests") == 0)

    assert metric("sentences_total") - before < 100
