"""Request types and workloads: requests that need the same components have the same type."""

from __future__ import annotations

from pathlib import Path

import pytest

from cornserve_planner.errors import InvalidInputError
from cornserve_planner.model.graph import RequestType
from cornserve_planner.model.request_types import MAX_SAMPLE, Modalities
from cornserve_planner.requests.request import WorkloadAudio, WorkloadImage, WorkloadRequest, WorkloadVideo
from cornserve_planner.workload.document import Workload, read_workload
from cornserve_planner.workload.request_files import write_requests

OMNI = Modalities(
    always=("llm",),
    inputs={"image": ("vision",), "video": ("vision",), "audio": ("ears",)},
    outputs={"audio": ("talker", "vocoder")},
)
REQUESTS = [
    WorkloadRequest(arrival=0, text_tokens=3),
    WorkloadRequest(arrival=1, images=(WorkloadImage(tokens=9),)),
    WorkloadRequest(arrival=2, videos=(WorkloadVideo(tokens=9),)),
    WorkloadRequest(arrival=4, text_tokens=1, audios=(WorkloadAudio(tokens=9),), output_modalities=("text", "audio")),
]


def test_requests_that_need_the_same_components_have_one_type() -> None:
    assert Workload.of_requests(REQUESTS, OMNI).shares == {
        RequestType("llm+vision", frozenset({"llm", "vision"})): 0.5,
        RequestType("llm", frozenset({"llm"})): 0.25,
        RequestType("llm+ears+talker+vocoder", frozenset({"llm", "ears", "talker", "vocoder"})): 0.25,
    }


def test_an_unsupported_modality_is_rejected() -> None:
    deaf = Modalities(always=("llm",), inputs={"image": ("vision",), "video": ("vision",)})

    with pytest.raises(InvalidInputError, match="request at 4 s: has audio input, which the model does not support"):
        Workload.of_requests(REQUESTS, deaf)
    with pytest.raises(InvalidInputError, match="request at 0 s: has image output, which the model does not support"):
        Workload.of_requests([WorkloadRequest(arrival=0, text_tokens=1, output_modalities=("image",))], deaf)


def test_an_empty_workload_is_rejected() -> None:
    with pytest.raises(InvalidInputError, match="requests: must not be empty"):
        Workload.of_requests([], OMNI)


def test_a_file_of_requests_has_shares_and_a_rate(tmp_path: Path) -> None:
    write_requests(tmp_path / "r.jsonl", REQUESTS)

    workload = read_workload(tmp_path / "r.jsonl", OMNI)

    assert workload.rate == pytest.approx(3 / 4)
    assert workload.shares == Workload.of_requests(REQUESTS, OMNI).shares


HEADER = "format: cornserve-planner/workload\nversion: 1\n"


def test_a_document_names_its_types(tmp_path: Path) -> None:
    path = tmp_path / "w.yaml"
    path.write_text(
        HEADER + "rate: 8\ntypes:\n  text: {components: [llm], share: 0.25}\n"
        "  image: {components: [llm, vision], share: 0.75}\n"
    )

    workload = read_workload(path)

    assert workload.rate == 8
    assert workload.shares == {
        RequestType("text", frozenset({"llm"})): 0.25,
        RequestType("image", frozenset({"llm", "vision"})): 0.75,
    }


def test_a_document_can_name_a_file_relative_to_itself(tmp_path: Path) -> None:
    write_requests(tmp_path / "r.csv", REQUESTS)
    path = tmp_path / "w.yaml"
    path.write_text(HEADER + "rate: 100\nrequests: r.csv\n")

    workload = read_workload(path, OMNI)

    assert workload.rate == 100
    assert workload.shares == Workload.of_requests(REQUESTS, OMNI).shares


def test_shares_may_be_rounded_to_three_digits(tmp_path: Path) -> None:
    path = tmp_path / "w.yaml"
    path.write_text(HEADER + "types: {a: {components: [llm], share: 0.333}, b: {components: [ears], share: 0.6665}}")

    assert sum(read_workload(path).shares.values()) == pytest.approx(0.9995)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "w.yaml: document: give either types or requests"),
        ("requests: r.csv\ntypes: {t: {components: [llm], share: 1}}", "give either types or requests"),
        ("types: {t: {components: [llm], share: 0.5}}", "types: the shares add up to 0.5, not to 1"),
        ("types: {t: {components: [llm], share: 0.998}}", "types: the shares add up to 0.998, not to 1"),
        ("types: {t: {components: [llm], share: -1}}", "types.t.share: must be greater than or equal to 0, not -1"),
        ("types: {t: {components: [llm], share: .nan}}", "types.t.share: must be a"),
        ("types: {t: {components: [], share: 1}}", "types.t.components"),
        ("rate: -2\ntypes: {t: {components: [llm], share: 1}}", "rate: must be greater than 0, not -2"),
        (
            f"types: {{{', '.join(f't{n}: {{components: [llm], share: {1 / 257}}}' for n in range(257))}}}",
            "types: are 257: give at most 256",
        ),
        ("requests: r.csv", "r.csv: the model has no `modalities`: add them to read a file of requests"),
    ],
)
def test_an_invalid_document_is_rejected(tmp_path: Path, text: str, error: str) -> None:
    path = tmp_path / "w.yaml"
    path.write_text(HEADER + text)

    with pytest.raises(InvalidInputError) as caught:
        read_workload(path)
    assert error in str(caught.value)


def test_a_workload_needs_at_least_two_requests(tmp_path: Path) -> None:
    write_requests(tmp_path / "r.csv", REQUESTS[:1])

    with pytest.raises(InvalidInputError, match=r"r.csv: has 1 requests: at least 2"):
        read_workload(tmp_path / "r.csv", OMNI)


def test_a_sample_of_many_requests_is_kept() -> None:
    requests = (WorkloadRequest(arrival=n, text_tokens=1 + n // MAX_SAMPLE) for n in range(2 * MAX_SAMPLE))

    [sizes] = Workload.of_requests(requests, OMNI).sizes.values()

    assert len(sizes) == MAX_SAMPLE
    assert sum(each["text_tokens"] for each in sizes) / MAX_SAMPLE == pytest.approx(1.5, abs=0.02)
