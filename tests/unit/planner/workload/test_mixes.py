"""Generated mixes of any-to-any requests, and the JSON schema of their files."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cornserve_planner.__main__ import app
from cornserve_planner.errors import InvalidInputError
from cornserve_planner.workload.mixes import MIXES, generate_mix
from cornserve_planner.workload.request_files import read_requests, request_lines_schema, write_requests


@pytest.mark.parametrize("name", MIXES)
def test_a_mix_has_the_rate_and_its_calls_wait_for_each_other(name: str, tmp_path: Path) -> None:
    requests = generate_mix(name, 4000, rate=5.0, seed=1)

    write_requests(tmp_path / "mix.jsonl", requests)
    assert list(read_requests(tmp_path / "mix.jsonl")) == requests
    assert len(requests) / requests[-1].arrival == pytest.approx(5.0, rel=0.1)
    dependent = [request for request in requests if request.after]
    assert len(dependent) / len(requests) == pytest.approx(1 - 1 / MIXES[name][1], abs=0.04)
    assert len({request.seed for request in requests}) > 3990


def test_the_mixes_have_different_modalities() -> None:
    outputs = {name: {request.output_modalities for request in generate_mix(name, 300, rate=1.0)} for name in MIXES}
    assert outputs == {
        "chats": {("text",)},
        "assistant": {("text", "audio")},
        "studio": {("text",), ("image",), ("audio",)},
    }


def test_one_seed_gives_the_same_requests_and_a_scale_smaller_ones() -> None:
    first, again, other = (generate_mix("assistant", 50, rate=1.0, seed=seed) for seed in (3, 3, 4))
    assert first == again != other
    small = generate_mix("chats", 200, rate=1.0, scale=0.05)
    assert sum(request.text_tokens for request in small) < 0.1 * sum(
        request.text_tokens for request in generate_mix("chats", 200, rate=1.0)
    )


def test_an_unknown_mix_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="must be one of chats, assistant, studio, not 'videos'"):
        generate_mix("videos", 1, rate=1.0)


def test_every_line_of_a_file_matches_the_schema_and_others_do_not(tmp_path: Path) -> None:
    path = tmp_path / "mix.jsonl"
    assert CliRunner().invoke(app, ["workload", "mix", "studio", str(path), "--requests", "50"]).exit_code == 0
    printed = CliRunner().invoke(app, ["workload", "schema"])
    schema = json.loads(printed.stdout)
    assert schema == request_lines_schema()
    validator = import_module("jsonschema").Draft202012Validator(schema)
    for line in path.read_text().splitlines():
        validator.validate(json.loads(line))
    for wrong in ({"arrival": -1, "text_tokens": 1}, {"arrival": 1, "words": 3}, {"arrival": 0, "after": ["a b"]}):
        assert not validator.is_valid(wrong)
