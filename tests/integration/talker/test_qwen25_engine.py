"""The talker of Qwen2.5-Omni. Its speech is compared with that of transformers in `serving/test_speaking_states.py`."""

from __future__ import annotations

import asyncio
import json
import shutil
from base64 import b64decode
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio
from pydantic import ValidationError

from cornserve.concurrency import gather_all
from cornserve.task import TensorStream
from cornserve_executors.base import ExecutorStartError, InvalidRequestError
from cornserve_executors.talker.stats import TalkerStats
from cornserve_tasklib.spoken_prompt import SpokenPrompt
from cornserve_tasklib.talker import SpokenChunk, SpokenCodesInfo, TalkerOptions, TalkerRequest, TalkerTask
from tests.integration.talker.reference import samples_of

if TYPE_CHECKING:
    import torch

    from cornserve_executors.talker.engine import TalkerEngine
    from cornserve_executors.talker.prompt import ThinkerPrompt
    from cornserve_executors.talker.spoken_text import SpokenPart

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]

MAX_TOKENS = 64
WIDTH = 128
CHAT = list(b"hello")
MEL_FRAME_SAMPLES = 240


@pytest.fixture(scope="module")
def stats() -> TalkerStats:
    return TalkerStats()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(tiny_qwen25omni_talker: Path, stats: TalkerStats) -> AsyncIterator[TalkerEngine]:
    from cornserve_executors.talker.engine import TalkerEngine

    options = TalkerOptions(max_batch_speeches=4, max_tokens=MAX_TOKENS)
    engine = TalkerEngine.load(TalkerTask(model_id=str(tiny_qwen25omni_talker), options=options), stats)
    work = asyncio.create_task(engine.run())
    await engine.warm_up()
    yield engine
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)
    engine.shutdown()


def request(**fields: Any) -> TalkerRequest:
    given: dict[str, Any] = {"states": TensorStream(), "seed": 1}
    return TalkerRequest(**given | fields)


def prompt() -> ThinkerPrompt:
    import torch

    from cornserve_executors.talker.prompt import ThinkerPrompt

    states = torch.randn(len(CHAT), WIDTH, generator=torch.Generator().manual_seed(0))
    return ThinkerPrompt(SpokenPrompt(tokens=CHAT), states)


async def parts(text: str, size: int) -> AsyncIterator[SpokenPart]:
    import torch

    from cornserve_executors.talker.spoken_text import SpokenPart

    tokens = text.encode()
    states = torch.randn(len(tokens), WIDTH, generator=torch.Generator().manual_seed(len(text))).unbind()
    for start in range(0, len(tokens), size):
        yield SpokenPart(list(tokens[start : start + size]), states[start : start + size])
        await asyncio.sleep(0)


SPEECHES = [
    (request(), "a small red boat"),
    (request(seed=2, temperature=0.0), "yes"),
    (request(seed=4, temperature=1.5, voice="Ethan"), "twenty blue birds"),
]


async def test_a_seed_gives_the_same_speech_in_any_batch_and_for_any_parts(
    engine: TalkerEngine, stats: TalkerStats
) -> None:
    alone = [
        (await engine.speak(given, "alone", None, parts(text, len(text)), prompt())).audio for given, text in SPEECHES
    ]

    together = await gather_all(
        engine.speak(given, str(number), None, parts(text, 1), prompt())
        for number, (given, text) in enumerate(SPEECHES)
    )

    assert [response.audio for response in together] == alone
    assert len(set(alone)) == len(SPEECHES)


async def test_codes_that_the_vocoder_cannot_decode_are_not_generated(
    tiny_qwen25omni_talker: Path, stats: TalkerStats, tmp_path: Path
) -> None:
    from cornserve_executors.talker.engine import TalkerEngine

    model = shutil.copytree(tiny_qwen25omni_talker, tmp_path / "model")
    config = json.loads((model / "config.json").read_text())
    config["token2wav_config"]["dit_config"]["num_embeds"] = 40
    (model / "config.json").write_text(json.dumps(config))
    options = TalkerOptions(max_tokens=MAX_TOKENS)
    task = TalkerTask(model_id=str(model), options=options, with_vocoder=False)
    engine = TalkerEngine.load(task, stats)
    work = asyncio.create_task(engine.run())
    codes: list[torch.Tensor] = []

    async def publish(part: torch.Tensor, info: SpokenCodesInfo) -> None:
        if info.text is None:
            codes.append(part)

    try:
        for seed in range(3):
            speech = request(temperature=2.0, seed=seed)
            await engine.speak_codes(speech, str(seed), publish, parts("a small red boat", 2), prompt())
    finally:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        engine.shutdown()

    assert codes
    assert max(int(part.max()) for part in codes) <= 40


async def test_the_first_chunk_is_short(engine: TalkerEngine) -> None:
    chunks: list[str] = []

    async def send(chunk: SpokenChunk) -> None:
        chunks.append(chunk.pcm)

    response = await engine.speak(request(), "streamed", send, parts("a small red boat", 2), prompt())

    # A block of 24 mel frames, without those that wait for their context.
    assert len(samples_of(chunks[0])) == (24 - 16) * MEL_FRAME_SAMPLES
    assert len(chunks) > 2
    assert b"".join(map(b64decode, chunks)) == b64decode(response.audio)
    assert (response.finish_reason, len(samples_of(response.audio)) % (2 * MEL_FRAME_SAMPLES)) == ("length", 0)


@pytest.mark.slow
async def test_chunks_differ_little_from_codes_decoded_at_once(tiny_qwen25omni_talker: Path) -> None:
    import torch

    from cornserve_executors.talker.loader import load_talker_model
    from tests.integration.talker.repaired_qwen25 import RepairedSpeech

    vocoder = load_talker_model(TalkerTask(model_id=str(tiny_qwen25omni_talker)), "cpu").vocoder
    codes = torch.randint(0, 70, (1, 90), generator=torch.Generator().manual_seed(1))
    whole = RepairedSpeech(tiny_qwen25omni_talker).decode(codes, "Ethan", seed=6)
    with torch.inference_mode():
        state = vocoder.start("ethan", 6)
        chunks = [vocoder.decode(state, part) for part in codes.split([24, 12, 24, 12, 12, 6], 1)]
        samples = torch.cat([*chunks, vocoder.finish(state)])

    assert len(samples) == len(whole) == 90 * 2 * MEL_FRAME_SAMPLES
    assert 0 < (samples - whole).abs().max() < 1e-3 * whole.abs().max()


@pytest.mark.slow
async def test_padding_changes_no_samples(tiny_qwen25omni_talker: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    from cornserve_executors.talker.loader import load_talker_model
    from cornserve_executors.talker.qwen2_5_omni import vocoder as module

    vocoder = load_talker_model(TalkerTask(model_id=str(tiny_qwen25omni_talker)), "cpu").vocoder
    codes = torch.randint(0, 70, (1, 66), generator=torch.Generator().manual_seed(1))

    def decode() -> torch.Tensor:
        with torch.inference_mode():
            state = vocoder.start("ethan", 6)
            chunks = [vocoder.decode(state, part) for part in codes.split([24, 12, 24, 6], 1)]
            return torch.cat([*chunks, vocoder.finish(state)])

    padded = decode()
    for sizes in ("WINDOW_BLOCKS", "CHUNK_BLOCKS"):
        monkeypatch.setattr(module, sizes, ())
    samples = decode()

    assert len(padded) == len(samples) == 66 * 2 * MEL_FRAME_SAMPLES
    assert (padded - samples).abs().max() < 1e-5 * samples.abs().max()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"voice": "alice"}, "voice: the model has no voice 'alice': use chelsie, ethan"),
        (
            {"states": None, "user_messages": ["hello"], "token_ids": [1]},
            r"the talker of a Qwen2\.5-Omni reads hidden states: set reads_states",
        ),
    ],
)
async def test_an_invalid_request_is_rejected(engine: TalkerEngine, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        await engine.speak(request(**fields), "invalid")


async def test_a_chat_that_is_too_long_is_rejected(engine: TalkerEngine) -> None:
    with pytest.raises(InvalidRequestError, match="the chat and the response have 7 and 70 tokens: this app allows"):
        await engine.speak(request(), "long", None, parts("x" * 70, 70), prompt())


async def test_states_replace_all_other_inputs() -> None:
    with pytest.raises(ValidationError, match="states: remove user_messages, prompt, token_ids and tokens"):
        request(token_ids=[1])


async def test_a_model_without_voices_is_rejected(tiny_qwen25omni_talker: Path, tmp_path: Path) -> None:
    from cornserve_executors.talker.loader import load_talker_model

    model = tmp_path / "model"
    shutil.copytree(tiny_qwen25omni_talker, model)
    (model / "spk_dict.pt").write_bytes(b"no voices")
    with pytest.raises(ExecutorStartError, match=r"spk_dict\.pt cannot be read: .+: download the model again"):
        load_talker_model(TalkerTask(model_id=str(model)), "cpu")

    (model / "spk_dict.pt").unlink()
    with pytest.raises(ExecutorStartError, match=r"has no voices: spk_dict\.pt not found"):
        load_talker_model(TalkerTask(model_id=str(model)), "cpu")
