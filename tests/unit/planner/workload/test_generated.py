"""Generated workloads have the fitted means and the requested modalities."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pytest

from cornserve_planner.errors import InvalidInputError
from cornserve_planner.requests.request import WorkloadRequest
from cornserve_planner.workload.added_modalities import AddedModalities, LogNormal, add_modalities
from cornserve_planner.workload.azure_trace import azure_lmm_2024
from cornserve_planner.workload.clients import ClientPool, mean_sizes
from cornserve_planner.workload.servegen import generate_requests


@pytest.fixture(scope="module")
def pool() -> ClientPool:
    return ClientPool.servegen_images()


@pytest.fixture(scope="module")
def morning(pool: ClientPool) -> list[WorkloadRequest]:
    return generate_requests(pool, 1200, rate=10, start=9 * 3600, seed=1)


def test_the_fit_keeps_the_recorded_means(pool: ClientPool) -> None:
    """Means of the published files, weighted by each client's rate.

    9.4746 requests/s, 572.1 text tokens, 1.586 images, 548.5 tokens per image, 129.7 output tokens.
    """
    fitted = mean_sizes(pool)

    assert len(pool.clients) == 35
    assert pool.rate.mean == pytest.approx(9.4746, rel=1e-3)
    assert fitted.text == pytest.approx(572.1, rel=1e-3)
    assert fitted.images == pytest.approx(1.586, rel=1e-3)
    assert fitted.image_tokens == pytest.approx(548.5, rel=1e-3)
    assert fitted.output == pytest.approx(129.7, rel=1e-3)


def test_a_sample_of_a_day_has_the_fitted_means(pool: ClientPool) -> None:
    hours = [generate_requests(pool, 40, rate=10, start=hour * 3600, seed=hour) for hour in range(24)]
    requests = [request for hour in hours for request in hour]
    fitted = mean_sizes(pool)

    assert len(requests) == pytest.approx(24 * 400, rel=0.05)
    assert np.mean([request.text_tokens for request in requests]) == pytest.approx(fitted.text, rel=0.15)
    assert np.mean([len(request.images) for request in requests]) == pytest.approx(fitted.images, rel=0.15)
    assert np.mean([request.output_tokens for request in requests]) == pytest.approx(fitted.output, rel=0.15)


def test_each_client_keeps_its_share_of_a_given_rate(pool: ClientPool, morning: list[WorkloadRequest]) -> None:
    recorded = {client.name: float(np.mean(client.rates[54:56])) for client in pool.clients}
    whole = sum(recorded.values())

    counts = Counter(request.client for request in morning)

    for name, rate in recorded.items():
        if rate / whole > 0.05:
            assert counts[name] / len(morning) == pytest.approx(rate / whole, rel=0.15)


def test_requests_come_in_order_and_within_the_time(morning: list[WorkloadRequest]) -> None:
    arrivals = [request.arrival for request in morning]

    assert arrivals == sorted(arrivals)
    assert arrivals[0] >= 0
    assert arrivals[-1] < 1200


def test_without_a_rate_the_recorded_rate_is_used(pool: ClientPool) -> None:
    evening = generate_requests(pool, 600, start=20 * 3600, seed=1)

    assert len(evening) == pytest.approx(600 * pool.rate.at(20 * 3600), rel=0.15)


def test_a_curve_sets_the_rate_of_all_clients_together(pool: ClientPool) -> None:
    curve = azure_lmm_2024().curve.between(0, 1200).scaled(6)

    requests = generate_requests(pool, 1200, rate=curve, seed=2)

    assert len(requests) == pytest.approx(7200, rel=0.05)


def test_equal_seeds_give_equal_workloads_and_other_seeds_do_not(pool: ClientPool) -> None:
    once, again, other = (generate_requests(pool, 60, rate=5, seed=seed) for seed in (7, 7, 8))

    assert once == again != other


def test_half_of_the_requests_have_video_and_audio_and_a_fifth_have_audio_output(
    morning: list[WorkloadRequest],
) -> None:
    requests = list(add_modalities(morning, AddedModalities(), seed=3))
    total = len(requests)

    assert all(request.images for request in requests)
    assert sum(bool(request.videos) for request in requests) / total == pytest.approx(0.5, abs=0.02)
    assert sum(bool(request.audios) for request in requests) / total == pytest.approx(0.5, abs=0.02)
    assert sum(bool(request.videos and request.audios) for request in requests) / total == pytest.approx(0.25, abs=0.02)
    assert sum("audio" in request.output_modalities for request in requests) / total == pytest.approx(0.2, abs=0.02)
    assert np.mean([request.videos[0].tokens for request in requests if request.videos]) == pytest.approx(
        10_000, rel=0.05
    )
    assert np.mean([request.audios[0].tokens for request in requests if request.audios]) == pytest.approx(200, rel=0.05)


def test_a_request_without_an_image_gets_one() -> None:
    (request,) = add_modalities(
        [WorkloadRequest(arrival=0, text_tokens=5)], AddedModalities(image_tokens=LogNormal(600, 0))
    )

    assert request.images[0].tokens == 600


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (
            lambda: generate_requests(ClientPool.servegen_images(), -1),
            "seconds: must be a finite number greater than 0, not -1",
        ),
        (lambda: generate_requests(ClientPool.servegen_images(), 1, rate=-1), r"rates\[0\]: must be a finite number"),
        (lambda: AddedModalities(video=1.5), "video: must be a probability, not 1.5"),
        (lambda: LogNormal(0), "mean: must be at least 1, not 0"),
        (lambda: LogNormal(1, -1), "cv: must be a finite number of at least 0, not -1"),
    ],
)
def test_invalid_workloads_are_rejected(make: object, error: str) -> None:
    assert callable(make)
    with pytest.raises(InvalidInputError, match=error):
        make()


def test_clients_with_columns_of_different_lengths_are_rejected() -> None:
    fields = json.loads(ClientPool.servegen_images().dump())
    fields["clients"][0]["cvs"].pop()

    with pytest.raises(InvalidInputError, match=r"clients.0: has 144 rates, 143 cvs and 144 families; the numbers"):
        ClientPool.parse(json.dumps(fields), "clients.json")
