"""VITS: the speech equals that of transformers, sentence by sentence."""

from __future__ import annotations

import asyncio
from base64 import b64decode
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pytest
import pytest_asyncio
from prometheus_client import Metric

from cornserve_executors.base import ExecutorStartError, InvalidRequestError
from cornserve_executors.media.audio_encoding import to_int16
from cornserve_executors.text_to_speech.stats import TextToSpeechStats
from cornserve_tasklib import SpeechChunk, SpeechRequest, SpeechResponse, TextToSpeechOptions, TextToSpeechTask
from tests.integration.docs.documented_metrics import documented_metrics
from tests.models.tiny_vits import make
from tests.waiting import until

if TYPE_CHECKING:
    from cornserve_executors.text_to_speech.engine import TextToSpeechEngine

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(120),
    pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning"),  # by transformers
]

MAX_CHARACTERS = 1000
SPEAKERS = 3
SENTENCES = ["The corn is ripe.", "Is it tall?", "Yes! It is, at 1.5 m."]
Reference = Callable[..., bytes]


def request(input: str = SENTENCES[0], **fields: Any) -> SpeechRequest:
    given: dict[str, Any] = {"input": input, "response_format": "pcm", "seed": 1}
    return SpeechRequest(**given | fields)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of several speakers."""
    directory = tmp_path_factory.mktemp("models") / "vits"
    make(directory, SPEAKERS)
    return directory


@pytest.fixture(scope="module")
def stats() -> TextToSpeechStats:
    return TextToSpeechStats()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(model: Path, stats: TextToSpeechStats) -> AsyncIterator[TextToSpeechEngine]:
    from cornserve_executors.text_to_speech.engine import TextToSpeechEngine

    options = TextToSpeechOptions(max_characters=MAX_CHARACTERS)
    engine = TextToSpeechEngine(TextToSpeechTask(model_id=str(model), options=options), stats)
    await engine.warm_up()
    yield engine
    engine.shutdown()


@pytest.fixture(scope="module")
def reference(model: Path, engine: TextToSpeechEngine) -> Reference:
    """transformers' own model, with the number of threads of the engine, which changes the rounding."""
    import torch
    from transformers import VitsModel, VitsTokenizer, set_seed

    from cornserve_executors.device_thread import device_threads

    vits, tokenizer = VitsModel.from_pretrained(model), VitsTokenizer.from_pretrained(model)
    thread = ThreadPoolExecutor(1, initializer=torch.set_num_threads, initargs=(device_threads(),))

    def speak(text: str, seed: int, speaker: int = 0, speed: float = 1) -> bytes:
        set_seed(seed)
        with torch.no_grad():
            output = vits(**tokenizer(text, return_tensors="pt"), speaker_id=speaker, speaking_rate=speed)
        samples: npt.NDArray[np.float32] = output.waveform[0].numpy()
        return bytes(to_int16(samples))

    return lambda *args, **options: thread.submit(speak, *args, **options).result()


async def spoken(engine: TextToSpeechEngine, request: SpeechRequest) -> tuple[list[bytes], SpeechResponse]:
    chunks: list[bytes] = []

    async def send(chunk: SpeechChunk) -> None:
        chunks.append(b64decode(chunk.audio))

    return chunks, await engine.speak(request, send)


def value(stats: TextToSpeechStats, name: str) -> float:
    return {sample.name: sample.value for metric in stats.metrics() for sample in metric.samples}[
        f"cornserve_text_to_speech_{name}"
    ]


@pytest.mark.parametrize("fields", [{}, {"seed": 7, "speed": 1.7}, {"voice": "2"}, {"voice": "default", "speed": 0.25}])
async def test_the_samples_equal_those_of_transformers(
    engine: TextToSpeechEngine, reference: Reference, fields: dict[str, Any]
) -> None:
    given = request(**fields)

    chunks, response = await spoken(engine, given)

    speaker = 0 if given.voice == "default" else int(given.voice)
    assert chunks == [reference(given.input, given.seed, speaker=speaker, speed=given.speed)]
    assert response.seconds == len(chunks[0]) / 2 / 16_000
    assert response.usage.completion_tokens == len(chunks[0]) / 2 / 256
    assert response.usage.prompt_tokens > len(given.input)


async def test_sentences_are_spoken_alone_with_the_following_seeds(
    engine: TextToSpeechEngine, reference: Reference
) -> None:
    chunks, _ = await spoken(engine, request(" ".join(SENTENCES), seed=5))

    parts = [*SENTENCES[:2], "Yes!", "It is, at 1.5 m."]
    assert chunks == [reference(part, seed) for seed, part in enumerate(parts, start=5)]


async def test_concurrent_requests_sound_like_those_alone(engine: TextToSpeechEngine) -> None:
    requests = [request(" ".join(SENTENCES), seed=seed, voice=str(seed % SPEAKERS)) for seed in range(6)]
    alone = [(await spoken(engine, each))[0] for each in requests]

    together = await asyncio.gather(*(spoken(engine, each) for each in requests))

    assert [chunks for chunks, _ in together] == alone
    assert len({b"".join(chunks) for chunks in alone}) == len(requests)


async def test_the_first_sentence_is_sent_before_the_last_is_spoken(
    engine: TextToSpeechEngine, stats: TextToSpeechStats
) -> None:
    before, counts = value(stats, "sentences_total"), []

    async def send(chunk: SpeechChunk) -> None:
        counts.append(value(stats, "sentences_total") - before)

    await engine.speak(request("One. Two. Three. Four."), send)

    assert counts == [1, 2, 3, 4]


async def test_a_second_attempt_continues_after_the_sent_chunks(engine: TextToSpeechEngine) -> None:
    given = request("One. Two. Three.", response_format="opus")
    expected, _ = await spoken(engine, given)
    rest: list[bytes] = []

    async def send(chunk: SpeechChunk) -> None:
        rest.append(b64decode(chunk.audio))

    await engine.speak(given, send, sent_chunks=2)

    assert rest == expected[2:]


async def test_a_cancelled_request_stops_after_its_sentence(
    engine: TextToSpeechEngine, stats: TextToSpeechStats
) -> None:
    before = value(stats, "sentences_total")
    started = asyncio.Event()

    async def send(chunk: SpeechChunk) -> None:
        started.set()

    work = asyncio.create_task(engine.speak(request("One. " * 200), send))
    await started.wait()
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work

    async def is_idle() -> bool:
        return value(stats, "running_requests") == 0

    await until(is_idle)
    await spoken(engine, request())
    assert value(stats, "sentences_total") - before < 100


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"voice": "alloy"}, r"voice: this model has no voice 'alloy': use default or a speaker from 0 to 2"),
        ({"voice": "3"}, "voice: this model has no voice '3'"),
        ({"voice": "-1"}, "voice: this model has no voice '-1'"),
        ({"input": "ß! 🌽"}, "input: the model knows no character of the text: it reads abc"),
        ({"input": " \n "}, "input: the model knows no character of the text"),
        ({"input": "a" * (MAX_CHARACTERS + 1)}, r"input: has 1001 characters: this app allows at most 1000"),
    ],
)
async def test_an_unusable_request_is_rejected(
    engine: TextToSpeechEngine, fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        await spoken(engine, request(**fields))


async def test_a_sentence_of_unknown_characters_is_silent(engine: TextToSpeechEngine, reference: Reference) -> None:
    chunks, _ = await spoken(engine, request("5. Corn."))

    assert chunks == [reference("Corn.", 1)]


async def test_a_long_sentence_is_divided_between_words(engine: TextToSpeechEngine, stats: TextToSpeechStats) -> None:
    before = value(stats, "sentences_total")

    await spoken(engine, request("corn " * 100))

    assert value(stats, "sentences_total") - before == 2


async def test_a_random_seed_varies(engine: TextToSpeechEngine) -> None:
    first, second = [(await spoken(engine, request(seed=None)))[0] for _ in range(2)]

    assert first != second


async def test_a_model_that_needs_phonemes_does_not_start(model: Path, tmp_path: Path) -> None:
    from transformers import VitsTokenizer

    from cornserve_executors.text_to_speech.engine import TextToSpeechEngine

    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).symlink_to(model / name)
    VitsTokenizer(str(model / "vocab.json"), phonemize=True).save_pretrained(tmp_path)

    with pytest.raises(ExecutorStartError, match=r"needs phonemes of espeak \(phonemize in tokenizer_config.json\)"):
        TextToSpeechEngine(TextToSpeechTask(model_id=str(tmp_path)), TextToSpeechStats())


async def test_every_metric_is_documented(stats: TextToSpeechStats) -> None:
    def described(metric: Metric) -> tuple[str, str, frozenset[str]]:
        labels = {label for sample in metric.samples for label in sample.labels}
        return metric.name, metric.type, frozenset(labels - {"le"})

    assert {described(metric) for metric in stats.metrics()} == documented_metrics("## Text to speech")
