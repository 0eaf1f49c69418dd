"""Files of requests: reading, writing, and errors with line, field and reason."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cornserve_planner.errors import InvalidInputError
from cornserve_planner.requests.request import WorkloadAudio, WorkloadImage, WorkloadRequest, WorkloadVideo
from cornserve_planner.workload.request_files import check_requests, read_requests, write_requests

JSON_LINES = '{"format": "cornserve-planner/requests", "version": 1}\n'
CSV = "# format: cornserve-planner/requests, version: 1\n"

EVERYTHING = [
    WorkloadRequest(arrival=0.0, id="first", text_tokens=5, seed=2**62),
    WorkloadRequest(arrival=0.2, id="2.b", text_tokens=5, after=("first",)),
    WorkloadRequest(
        arrival=0.25,
        after=("first", "2.b"),
        delay=1.5,
        client="a, b",
        text_tokens=12,
        images=(
            WorkloadImage(width=1920, height=1080),
            WorkloadImage(tokens=650),
            WorkloadImage(width=64, height=48, tokens=9),
        ),
        videos=(WorkloadVideo(seconds=12.5, frames=25, width=640, height=360), WorkloadVideo(tokens=10_000)),
        audios=(WorkloadAudio(seconds=8), WorkloadAudio(tokens=200)),
        output_modalities=("text", "audio", "image"),
        output_tokens=40,
        output_images=(WorkloadImage(width=512, height=512),),
        output_audio_seconds=3.5,
    ),
    WorkloadRequest(arrival=0.25, text_tokens=1),
    WorkloadRequest(arrival=1 / 3, audios=(WorkloadAudio(seconds=1 / 3),), output_modalities=("audio",)),
]


@pytest.mark.parametrize("suffix", ["jsonl", "csv"])
def test_a_written_file_can_be_read(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"requests.{suffix}"

    write_requests(path, EVERYTHING)

    assert list(read_requests(path)) == EVERYTHING
    assert check_requests(path) == []


media = st.lists(
    st.one_of(
        st.builds(WorkloadVideo, seconds=st.floats(1e-3, 1e6), frames=st.none() | st.integers(1, 10**6)),
        st.builds(
            WorkloadVideo, width=st.integers(1, 10**5), height=st.just(7), tokens=st.none() | st.integers(1, 10**7)
        ),
    ),
    max_size=3,
).map(tuple)
requests = st.builds(
    WorkloadRequest,
    arrival=st.floats(0, 1e9),
    client=st.text("abc ,;\"'{}", max_size=5).map(str.strip),
    text_tokens=st.integers(1, 10**6),
    videos=media,
    output_modalities=st.sampled_from([("text",), ("audio", "text"), ("video",)]),
)


@settings(derandomize=True, max_examples=60)
@given(found=st.lists(requests, max_size=5), suffix=st.sampled_from(["jsonl", "csv"]))
def test_any_written_requests_can_be_read(found: list[WorkloadRequest], suffix: str) -> None:
    ordered = sorted(found, key=lambda request: request.arrival)
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"requests.{suffix}"

        write_requests(path, ordered)

        assert list(read_requests(path)) == ordered


def _file(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ('{"text_tokens": 1}', "arrival: is missing"),
        ('{"arrival": -1, "text_tokens": 1}', "arrival: must be greater than or equal to 0, not -1"),
        ('{"arrival": NaN, "text_tokens": 1}', "arrival: must be a finite number, not nan"),
        ('{"arrival": "1", "text_tokens": 1}', "arrival: must be a valid number, not '1'"),
        ('{"arrival": 1, "tokens": 1}', "tokens: is not a field of cornserve-planner/requests"),
        ('{"arrival": 1, "text_tokens": 1.5}', "text_tokens: must be a valid integer"),
        ('{"arrival": 1}', "document: must have an input: text_tokens, images"),
        ('{"arrival": 1, "images": [{}]}', "images.0: must have dimensions or tokens"),
        ('{"arrival": 1, "images": [{"width": 5}]}', "images.0: width and height must be given together"),
        ('{"arrival": 1, "images": [{"width": 0, "height": 5}]}', "images.0.width: must be greater than 0, not 0"),
        ('{"arrival": 1, "videos": [{"seconds": -3}]}', "videos.0.seconds: must be greater than 0, not -3"),
        ('{"arrival": 1, "text_tokens": 1, "output_modalities": ["smell"]}', "output_modalities.0: must be 'text',"),
        ('{"arrival": 1, "text_tokens": 1, "output_audio_seconds": 2}', "document: has audio output, but output_mod"),
        ('{"arrival": 1, "text_tokens": 1, "text_tokens": 2}', "text_tokens: is given twice"),
        ('{"arrival": 1, "images": [{"tokens": 1, "tokens": 2}]}', "tokens: is given twice"),
        ('{"arrival": 1, "text_tok', "document: Invalid JSON"),
        ('{"arrival": 1, "images": ' + "[" * 100_000, "document: Invalid JSON: recursion limit exceeded"),
        ('{"arrival": 1, "text_tokens": 1, "after": ["x"]}', "after: 'x' is not the id of an earlier request"),
        ('{"arrival": 1, "text_tokens": 1, "id": "x", "after": ["x"]}', "after: 'x' is not the id of an earlier"),
        ('{"arrival": 1, "text_tokens": 1, "after": ["x", "x"]}', "document: names a request twice in after"),
        ('{"arrival": 1, "text_tokens": 1, "delay": 2}', "document: has a delay, but no request in after"),
        ('{"arrival": 1, "text_tokens": 1, "id": "a b"}', "id: "),
        ('{"arrival": 1, "text_tokens": 1, "seed": -1}', "seed: must be greater than or equal to 0, not -1"),
    ],
)
def test_an_invalid_line_is_reported_with_field_and_reason(tmp_path: Path, line: str, error: str) -> None:
    path = _file(tmp_path, "r.jsonl", f'{JSON_LINES}{{"arrival": 0, "text_tokens": 1}}\n\n{line}\n')

    (found,) = check_requests(path)

    assert str(found).startswith(f"r.jsonl line 4: {error}")
    with pytest.raises(InvalidInputError, match="line 4"):
        list(read_requests(path))


@pytest.mark.parametrize(
    ("columns", "row", "error"),
    [
        ("arrival,text_tokens", "x,1", "arrival: x: must be a number"),
        ("arrival,text_tokens", "inf,1", "arrival: must be a finite number"),
        ("arrival,text_tokens", "1,1.5", "text_tokens: 1.5: must be a whole number"),
        ("arrival,text_tokens", "1", "line: the number of cells differs from the number of columns"),
        ("arrival,text_tokens", "1,2,3", "line: the number of cells differs from the number of columns"),
        ("arrival,images", "1,1920*1080", "images: 1920*1080: must consist of parts such as 1920x1080 (pixels)"),
        ("arrival,images", "1,0x10", "images.0.width: must be greater than 0, not 0"),
        ("arrival,images", "1,5x5:7s", "images.0.seconds: is not a field of cornserve-planner/requests"),
        ("arrival,images", "1,5x5:7x7", "images: 5x5:7x7: has height twice"),
        ("arrival,images", "1,5x5;", "images: '': must consist of parts"),
        ("arrival,images", f"1,{'9' * 5000}x1", f"images: {'9' * 80}: must consist of parts"),
    ],
)
def test_an_invalid_row_is_reported_with_field_and_reason(tmp_path: Path, columns: str, row: str, error: str) -> None:
    path = _file(tmp_path, "r.csv", f"{CSV}{columns}\n{row}\n")

    (found,) = check_requests(path)

    assert str(found).startswith(f"r.csv line 3: {error}")


@pytest.mark.parametrize("suffix", ["jsonl", "csv"])
def test_a_byte_order_mark_is_ignored(tmp_path: Path, suffix: str) -> None:
    text = {"jsonl": f'{JSON_LINES}{{"arrival": 1, "text_tokens": 1}}\n', "csv": f"{CSV}arrival,text_tokens\n1,1\n"}
    path = _file(tmp_path, f"r.{suffix}", "\ufeff" + text[suffix])

    (request,) = read_requests(path)

    assert request.arrival == 1


def test_all_invalid_lines_are_reported_up_to_a_limit(tmp_path: Path) -> None:
    path = _file(tmp_path, "r.jsonl", JSON_LINES + '{"arrival": 1}\n' * 5)

    assert len(check_requests(path)) == 5
    assert len(check_requests(path, most=3)) == 3


def test_requests_out_of_order_are_rejected(tmp_path: Path) -> None:
    path = _file(tmp_path, "r.csv", f"{CSV}arrival,text_tokens\n2,1\n1,1\n3,1\n")

    assert [str(error) for error in check_requests(path)] == [
        "r.csv line 4: arrival: is 1 s, before the previous request (2 s): sort the requests by arrival"
    ]


@pytest.mark.parametrize(
    ("name", "text", "error"),
    [
        ("r.jsonl", "", "r.jsonl line 1: document: must be a mapping of fields, not None"),
        ("r.jsonl", '{"arrival": 1}\n', "r.jsonl line 1: format: is missing: write 'cornserve-planner/requests'"),
        (
            "r.jsonl",
            JSON_LINES.replace("1}", "2}"),
            "r.jsonl line 1: version: unsupported version 2: this release reads version 1",
        ),
        ("r.csv", "arrival,text_tokens\n", "r.csv line 1: document: must be a mapping of fields"),
        ("r.csv", CSV.replace("1", "9"), "r.csv line 1: version: unsupported version 9: this release reads version 1"),
        ("r.csv", f"{CSV}arrival,colour\n", "r.csv line 2: colour: is not a field of cornserve-planner/requests"),
        ("r.csv", f"{CSV}arrival,arrival\n", "r.csv line 2: arrival: is given twice"),
        ("r.txt", "", "must be a .jsonl or a .csv file"),
    ],
)
def test_a_file_of_another_format_or_version_is_rejected(tmp_path: Path, name: str, text: str, error: str) -> None:
    path = _file(tmp_path, name, text)

    (found,) = check_requests(path)

    assert error in str(found)


def test_a_missing_file_is_rejected(tmp_path: Path) -> None:
    (found,) = check_requests(tmp_path / "gone.csv")

    assert "cannot be read: No such file or directory" in str(found)


def test_a_binary_file_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    path.write_bytes(b"\xff\xfe\x00")

    (found,) = check_requests(path)

    assert str(found) == "r.csv: is not UTF-8 text: save it as UTF-8"


def test_a_csv_file_with_a_huge_cell_is_rejected(tmp_path: Path) -> None:
    path = _file(tmp_path, "r.csv", f"{CSV}arrival,text_tokens\n1,{'9' * 200_000}\n")

    (found,) = check_requests(path)

    assert str(found) == "r.csv: is not valid CSV: field larger than field limit (131072)"


def test_a_file_with_an_unknown_suffix_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"must be a \.jsonl or a \.csv file"):
        write_requests(tmp_path / "r.parquet", EVERYTHING)
