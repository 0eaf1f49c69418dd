"""Conditions of measurements, and the store of results."""

from __future__ import annotations

from pathlib import Path

import pytest

from cornserve.app.record import EngineTokens
from cornserve.home import Home
from cornserve.profiler.profile_file import model_profile
from cornserve.profiler.profiler import measured_tokens
from cornserve.profiler.results import (
    Conditions,
    LoadLevel,
    MemoryUse,
    MixMeasurement,
    MixShare,
    OptionResults,
    StartSummary,
    describe_mix,
)
from cornserve.profiler.store import ProfileStore, ProfileStoreError
from cornserve_echo.stages import StageTask
from cornserve_planner.profiles.profile import ModelProfile

BEFORE = Conditions(
    model="main", versions={"cornserve": "0.1.0", "vllm": "1"}, device="small", hardware="CPU", driver="6.1"
)
MIX = (MixShare(components=("llm",), share=1),)
TASK = StageTask(seconds={"llm": 0.1})


def measurement(rate: float, error: float = 0.01, *, is_saturated: bool = True) -> MixMeasurement:
    return MixMeasurement(
        mix=MIX,
        requests="a",
        rate=rate,
        standard_error=error,
        replicas=1,
        is_saturated=is_saturated,
        levels=(),
        poisson=None,
        date="2026-01-01",
    )


@pytest.fixture
def results() -> OptionResults:
    return OptionResults(task="StageTask", settings={}, spec=TASK.spec, conditions=BEFORE)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": "abc"}, "model was main, is abc"),
        ({"driver": "6.2"}, "driver was 6.1, is 6.2"),
        ({"versions": {"cornserve": "0.2.0", "vllm": "1"}}, "cornserve was 0.1.0, is 0.2.0"),
        ({"versions": {"cornserve": "0.1.0"}}, "vllm was 1, is absent"),
    ],
)
def test_changes_are_named(change: dict[str, object], message: str) -> None:
    assert BEFORE.model_copy(update=change).changes_since(BEFORE) == [message]
    assert BEFORE.changes_since(BEFORE) == []


def test_a_measurement_replaces_the_earlier_one_of_its_mix(results: OptionResults) -> None:
    found = results.with_measurement(measurement(10)).with_measurement(measurement(11))
    assert [m.rate for m in found.measurements] == [11]
    assert found.find(MIX, "a", standard_error=0.01) is not None
    assert found.find(MIX, "a", standard_error=0.005) is None
    assert found.find(MIX, "b", standard_error=0.01) is None


def test_the_measurement_of_a_mix_with_the_smaller_error_stays(results: OptionResults) -> None:
    narrow, wide = measurement(10, error=0.01), measurement(11, error=0.02)
    assert results.with_measurement(narrow).with_measurement(wide).measurements == (narrow,)
    assert results.with_measurement(wide).with_measurement(narrow).measurements == (narrow,)


def test_a_measurement_that_is_not_saturated_is_missing_and_gives_way_to_a_saturated_one(
    results: OptionResults,
) -> None:
    early, saturated = measurement(8, error=0.005, is_saturated=False), measurement(10, error=0.02)
    assert results.with_measurement(early).find(MIX, "a", standard_error=0.01) is None
    assert results.with_measurement(early).with_measurement(saturated).measurements == (saturated,)
    assert results.with_measurement(saturated).with_measurement(early).measurements == (saturated,)


ENGINE = EngineTokens(
    requests=10,
    prompt_tokens=1000,
    generated_tokens=500,
    cache_tokens=2048,
    block_size=128,
    max_num_seqs=32,
    max_num_batched_tokens=512,
)


def test_a_measured_language_model_has_a_step_model(results: OptionResults) -> None:
    """A step takes 20 ms, and 0.1 ms for each token."""
    after = ENGINE.model_copy(update={"requests": 30, "prompt_tokens": 3000, "generated_tokens": 700})
    tokens = measured_tokens([ENGINE], [after])
    assert tokens is not None
    assert (tokens.prompt, tokens.generated) == (100, 10)
    levels = tuple(
        LoadLevel(
            concurrency=number,
            rate=1,
            standard_error=0.01,
            requests=100,
            seconds=(10 * 0.02 + number * 109 * 0.0001) * (1 if number <= 16 else 2),
            p50=1,
            p99=1,
        )
        for number in (1, 4, 16, 32, 64)  # With 32 in flight, requests wait for a place in the KV cache.
    )
    found = results.model_copy(update={"task": "LLMTask"})
    found = found.with_measurement(measurement(10).model_copy(update={"levels": levels, "tokens": tokens}))

    [plain] = model_profile("app", {"llm": found}, {"llm": ("llm",)}).options
    [option] = model_profile("app", {"llm": found}, {"llm": ("llm",)}, with_steps=True).options
    [whole] = model_profile("app", {"el": found}, {"el": ("encoder", "llm")}, with_steps=True).options

    assert plain.step is whole.step is None
    assert option.step is not None
    assert (option.step.fixed, option.step.per_token) == pytest.approx((0.02, 0.0001))
    assert (option.step.cache_tokens, option.step.block_size, option.step.max_num_seqs) == (2048, 128, 32)


@pytest.mark.parametrize("engines", [([], []), ([ENGINE], []), ([ENGINE], [ENGINE])])
def test_a_measurement_without_an_engine_or_requests_has_no_tokens(
    engines: tuple[list[EngineTokens], list[EngineTokens]],
) -> None:
    assert measured_tokens(*engines) is None


def test_a_mix_is_described_with_its_shares() -> None:
    both = (MixShare(components=("llm",), share=0.75), MixShare(components=("encoder", "llm"), share=0.25))
    assert describe_mix(both) == "llm 75%, encoder+llm 25%"
    assert describe_mix(MIX) == "llm"


def test_results_are_stored_by_option_and_device(tmp_path: Path, results: OptionResults) -> None:
    store = ProfileStore.of(Home(tmp_path))
    with store.locked():
        store.write(results)
        assert store.read(TASK.spec, "small") == results
        assert store.read(TASK.spec, "big") is None
        assert store.read(StageTask(seconds={"llm": 0.2}).spec, "small") is None
        with (
            pytest.raises(
                ProfileStoreError, match="other measurements, of `cornserve profile` or of a controller, use"
            ),
            ProfileStore.of(Home(tmp_path)).locked(),
        ):
            raise AssertionError("two profilers have the lock")


def test_a_damaged_file_is_named(tmp_path: Path, results: OptionResults) -> None:
    store = ProfileStore.of(Home(tmp_path))
    with store.locked():
        store.file(TASK.spec, "small").write_text("{")
    with pytest.raises(ProfileStoreError, match=r"stage-.*-small\.json is damaged or of another version: remove it"):
        store.read(TASK.spec, "small")


def test_a_profile_is_written_or_its_directory_is_named(tmp_path: Path) -> None:
    store = ProfileStore.of(Home(tmp_path))
    assert store.write_profile("caption", "small", "{}").read_text() == "{}"

    (other := Home(tmp_path / "other")).path.mkdir()
    ProfileStore.of(other).path.touch()
    with pytest.raises(ProfileStoreError, match=r"cannot write to .*profiles: .*: choose another --home"):
        ProfileStore.of(other).write_profile("caption", "small", "{}")


def test_starts_and_the_highest_memory_are_kept(results: OptionResults) -> None:
    found = results.with_memory(MemoryUse(started=1, peak=9)).with_memory(None)
    assert found.with_memory(MemoryUse(started=2, peak=3)).memory == MemoryUse(started=2, peak=9)
    started = results.with_start(3.0).with_start(1.0).with_start(2.0)
    assert str(StartSummary.of(started.startup)) == "2.0 s (median of 3, p95 2.9 s)"


def test_the_planners_profile_has_starts_and_the_batch_curve_with_errors(results: OptionResults) -> None:
    levels = tuple(
        LoadLevel(concurrency=n, rate=10, standard_error=0.01 * n, seconds=n / 10, p50=n / 10, p99=n / 10, requests=30)
        for n in (1, 2)
    )
    measured = measurement(10).model_copy(update={"levels": levels})
    profile = model_profile("app", {"llm": results.with_start(2.0).with_measurement(measured)}, {"llm": ("llm",)})
    [option] = ModelProfile.parse(profile.dump(), "profile.json").options
    [curve] = option.latency
    assert (curve.batch, curve.seconds, curve.error) == ((1, 2), (0.1, 0.2), (0.01, 0.02))
    assert option.startup is not None
    assert (option.startup.value, option.startup.source.partition(", ")[2]) == (
        2.0,
        "median of 1 starts, 95th percentile 2 s",
    )
