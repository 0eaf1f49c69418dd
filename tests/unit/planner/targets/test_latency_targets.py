"""Batch sizes and limits of utilization that meet latency targets and fit in memory."""

from __future__ import annotations

import itertools
import random

import pytest

from cornserve_planner.errors import InfeasibleError, InvalidInputError
from cornserve_planner.model.graph import DeploymentOption
from cornserve_planner.model.problem import GpuType, PlanningProblem, RequestPath
from cornserve_planner.profiles.profile import BatchLatency
from cornserve_planner.solve.budget import Budget
from cornserve_planner.solve.optimization import max_rate
from cornserve_planner.targets.latency_targets import LatencyTargets, meet_targets
from cornserve_planner.targets.option_batches import OptionBatches
from cornserve_planner.targets.queueing import latency_bound

GIB = float(2**30)


def curve(**seconds: float) -> BatchLatency:
    """Returns a curve: `b1=0.5` is a batch of one request in 0.5 s."""
    sizes = tuple(int(name[1:]) for name in seconds)
    return BatchLatency(batch=sizes, seconds=tuple(seconds.values()), tag="measured", source="test")


ENCODER = OptionBatches(curve(b1=0.1, b4=0.2, b16=0.6), weights=2 * GIB, cache=0.5 * GIB)
LLM = OptionBatches(
    curve(b1=2.0, b8=4.0, b32=10.0),
    first_token=curve(b1=0.1, b8=0.3, b32=1.0),
    between_tokens=curve(b1=0.02, b8=0.04, b32=0.1),
    weights=16 * GIB,
    cache=1.0 * GIB,
)
BATCHES = {"encoder": ENCODER, "llm": LLM}


def split(memory: float | None = None) -> PlanningProblem:
    """Returns a problem with a separate encoder. A text needs only the language model."""
    gpus = {"gpu": GpuType("gpu", memory=memory)}
    options = (
        DeploymentOption("encoder", ("encoder",), gpu="gpu"),
        DeploymentOption("llm", ("llm",), gpu="gpu"),
    )
    paths = (
        RequestPath("text", "encoder → llm", {"llm": 10 / 32}),
        RequestPath("image", "encoder → llm", {"encoder": 0.6 / 16, "llm": 10 / 32}),
    )
    return PlanningProblem(options, {"text": 0.5, "image": 0.5}, paths, gpus)


def test_options_run_with_the_batch_size_that_serves_most() -> None:
    found = meet_targets(split(), BATCHES)
    assert found.batches == {"encoder": 16, "llm": 32}
    assert found.problem.paths == split().paths
    assert found.problem.memory == {"encoder": 10 * GIB, "llm": 48 * GIB}
    assert found.problem.max_utilization == {}


def test_the_caches_of_the_requests_in_flight_fit_next_to_the_weights() -> None:
    found = meet_targets(split(memory=24 * GIB), BATCHES)
    assert found.batches == {"encoder": 16, "llm": 8}
    assert found.problem.paths[0].seconds == pytest.approx({"llm": 4 / 8})
    assert found.problem.excluded == {}


def test_an_option_whose_smallest_batch_does_not_fit_is_excluded() -> None:
    found = meet_targets(split(memory=17 * GIB * 0.99), BATCHES)
    assert "llm" in found.problem.excluded


def test_the_time_between_tokens_limits_the_batch_size() -> None:
    assert meet_targets(split(), BATCHES, LatencyTargets(between_tokens=0.05)).batches["llm"] == 8


def test_only_options_that_generate_tokens_need_a_latency_between_tokens() -> None:
    targets = LatencyTargets(between_tokens=0.05)

    assert meet_targets(split(), {"llm": LLM}, targets).batches == {"llm": 8}
    with pytest.raises(InfeasibleError, match="no option has a latency between tokens in the profile"):
        meet_targets(split(), {"encoder": ENCODER}, targets)


def test_a_plan_meets_the_target_of_the_first_token_by_the_bound() -> None:
    targets = LatencyTargets(first_token=1.5)
    found = meet_targets(split(), BATCHES, targets)
    sizes, limits = found.batches, found.problem.max_utilization
    servers = [ENCODER.server(sizes["encoder"], first_token=True), LLM.server(sizes["llm"], first_token=True)]
    assert latency_bound(servers, max(limits.values()), targets.exceeding) <= 1.5 * (1 + 1e-9)
    assert 0 < max_rate(found.problem, Budget(gpus=8)).rate < max_rate(split(), Budget(gpus=8)).rate


def test_steps_after_the_first_token_do_not_count_toward_it() -> None:
    paths = (RequestPath("image", "llm → encoder", {"llm": 10 / 32, "encoder": 0.6 / 16}),)
    problem = PlanningProblem(split().options, {"image": 1.0}, paths)
    slow = {"llm": LLM, "encoder": OptionBatches(curve(b1=60.0))}
    assert meet_targets(problem, slow, LatencyTargets(first_token=4.0)).excluded == {}
    with pytest.raises(InfeasibleError, match=r"llm → encoder: the complete response takes up to .* more than 30 s"):
        meet_targets(problem, slow, LatencyTargets(request=30.0))


def test_paths_without_measured_latency_are_excluded() -> None:
    with pytest.raises(InfeasibleError, match="encoder has no latency in the profile: measure it"):
        meet_targets(split(), {"llm": LLM}, LatencyTargets(request=60.0))


def test_a_path_that_would_limit_the_others_is_omitted() -> None:
    slow = DeploymentOption("slow", ("encoder",), gpu="gpu")
    paths = (*split().paths, RequestPath("image", "slow → llm", {"slow": 0.03, "llm": 10 / 32}))
    problem = PlanningProblem((*split().options, slow), split().shares, paths, split().gpus)
    batches = BATCHES | {"slow": OptionBatches(curve(b1=4.0))}
    found = meet_targets(problem, batches, LatencyTargets(request=16.0))
    assert list(found.excluded) == ["slow → llm"]
    assert "limits its options to" in found.excluded["slow → llm"]


@pytest.mark.parametrize("seed", range(20))
def test_a_small_search_finds_the_best_combination(seed: int) -> None:
    source = random.Random(seed)
    targets = LatencyTargets(first_token=source.uniform(0.5, 3.0), request=source.uniform(4.0, 30.0))
    single = [
        BATCHES | {"encoder": _only(ENCODER, first), "llm": _only(LLM, second)}
        for first, second in itertools.product(range(3), range(3))
    ]
    rates = []
    for batches in single:
        try:
            slower = {name: BATCHES[name].slowdown(option.request.batch[0]) for name, option in batches.items()}
            paths = tuple(
                RequestPath(p.type, p.name, {n: s * slower[n] for n, s in p.seconds.items()}) for p in split().paths
            )
            problem = PlanningProblem(split().options, split().shares, paths, split().gpus)
            rates.append(max_rate(meet_targets(problem, batches, targets).problem, Budget(gpus=64)).relaxation)
        except InfeasibleError:
            rates.append(0.0)
    if max(rates) == 0:
        with pytest.raises(InfeasibleError):
            meet_targets(split(), BATCHES, targets)
        return
    found = max_rate(meet_targets(split(), BATCHES, targets).problem, Budget(gpus=64)).relaxation
    assert found == pytest.approx(max(rates))


def _only(option: OptionBatches, index: int) -> OptionBatches:
    """Returns the option with one of its batch sizes."""

    def at(found: BatchLatency | None) -> BatchLatency | None:
        if found is None:
            return None
        changed = {"batch": found.batch[index : index + 1], "seconds": found.seconds[index : index + 1]}
        return found.model_copy(update=changed)

    request = at(option.request)
    assert request is not None
    return OptionBatches(request, at(option.first_token), at(option.between_tokens), option.weights, option.cache)


@pytest.mark.parametrize(("field", "name"), [("first_token", "ttft"), ("between_tokens", "tbt"), ("request", "e2e")])
def test_targets_must_be_positive(field: str, name: str) -> None:
    with pytest.raises(InvalidInputError, match=f"--{name}: must be"):
        LatencyTargets(**{field: 0.0})
