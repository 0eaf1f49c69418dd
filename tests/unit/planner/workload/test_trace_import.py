"""`python -m cornserve_planner workload import`."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from cornserve_planner.__main__ import app
from cornserve_planner.workload.request_files import read_requests, write_requests
from cornserve_planner.workload.trace_import import TRACES, import_trace

AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.6805900,374,44
2023-11-16 18:15:50.9305900,396,109
"""
MOONCAKE = """{"timestamp": 27000, "input_length": 374, "output_length": 44, "hash_ids": [1, 2]}
{"timestamp": 31250, "input_length": 396, "output_length": 109, "hash_ids": [1]}
"""
BURSTGPT = """Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type
5,ChatGPT,374,44,418,Conversation log
9.25,GPT-4,396,109,505,API log
"""
VLLM = json.dumps({"start_times": [104.25, 100.0], "input_lens": [396, 374], "output_lens": [109, 44], "ttfts": [1, 1]})


def run(trace: Path, *options: str) -> Result:
    return CliRunner().invoke(app, ["workload", "import", str(trace), str(trace.with_name("out.jsonl")), *options])


@pytest.mark.parametrize(
    ("name", "text", "options"),
    [
        ("trace.csv", AZURE, ["--format", "azure"]),
        ("trace.jsonl", MOONCAKE, ["--format", "mooncake"]),
        ("trace.csv", BURSTGPT, ["--format", "burstgpt"]),
        ("result.json", VLLM, ["--format", "vllm"]),
        (
            "trace.csv",
            "when,in,out\n1000,374,44\n5250,396,109\n",
            ["--arrival", "when", "--text-tokens", "in", "--output-tokens", "out", "--milliseconds"],
        ),
        ("trace.csv", AZURE.replace(",", ";"), ["--format", "azure"]),
        ("trace.csv", AZURE.replace(",", "\t"), ["--format", "azure"]),
    ],
)
def test_a_trace_becomes_a_file_of_requests(tmp_path: Path, name: str, text: str, options: list[str]) -> None:
    (trace := tmp_path / name).write_text(text)

    result = run(trace, *options)

    assert result.exit_code == 0, result.output
    requests = [(each.arrival, each.text_tokens, each.output_tokens) for each in read_requests(tmp_path / "out.jsonl")]
    assert requests == [(0, 374, 44), (pytest.approx(4.25), 396, 109)]


def test_an_import_holds_one_request_at_a_time(tmp_path: Path) -> None:
    (trace := tmp_path / "trace.csv").write_text(BURSTGPT + "9.5,GPT-4,396,109,505,API log\n" * 5000)

    tracemalloc.start()
    write_requests(tmp_path / "out.jsonl", import_trace(trace, TRACES["burstgpt"]))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert sum(1 for _ in read_requests(tmp_path / "out.jsonl")) == 5002
    assert peak < 500_000


def test_failed_requests_of_a_benchmark_are_left_out(tmp_path: Path) -> None:
    (trace := tmp_path / "result.json").write_text(json.dumps({**json.loads(VLLM), "errors": ["Timeout", ""]}))

    result = run(trace, "--format", "vllm")

    assert result.stderr == "requests that have failed, and are left out: 1\n"
    assert [each.text_tokens for each in read_requests(tmp_path / "out.jsonl")] == [374]


def test_a_benchmark_needs_an_error_for_each_request(tmp_path: Path) -> None:
    (trace := tmp_path / "result.json").write_text(json.dumps({**json.loads(VLLM), "errors": [""]}))

    assert (
        "needs arrays start_times, input_lens, output_lens, errors of one length"
        in run(trace, "--format", "vllm").stderr
    )


def servegen(folder: Path, *, texts: str = "{100: 0.5, 200: 0.5}") -> Path:
    folder.mkdir(exist_ok=True)
    windows = {"0": {"text_tokens": texts, "output_tokens": "{20: 1.0}", "image_count": "{1: 1.0}"}}
    windows["21600"] = windows["0"] | {"text_tokens": "{7: 1.0}"}
    for number, rate in enumerate((2.0, 0.5)):
        rows = f"0,{rate},1.2,Gamma,0.7,0.7\n600,{rate},,,,\n"
        (folder / f"chunk-{number}-trace.csv").write_text(rows)
        (folder / f"chunk-{number}-dataset.json").write_text(json.dumps(windows))
    return folder


def test_profiles_of_servegens_clients_become_requests(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    trace = servegen(tmp_path / "trace")
    arguments = ["workload", "import", str(trace), str(out), "--format", "servegen", "--seconds", "400"]

    result = CliRunner().invoke(app, arguments)

    assert result.exit_code == 0, result.output
    requests = list(read_requests(out))
    assert len(requests) == pytest.approx(1000, rel=0.2)
    assert {request.text_tokens for request in requests} == {100, 200}
    assert {request.client for request in requests} == {"chunk-0", "chunk-1"}


def test_other_directories_are_not_imported(tmp_path: Path) -> None:
    (trace := tmp_path / "trace").mkdir()
    arguments = ["workload", "import", str(trace), str(tmp_path / "out.jsonl"), "--format", "servegen"]
    assert "has no chunk-N-trace.csv" in CliRunner().invoke(app, arguments).output
    servegen(trace, texts="__import__('os')")
    assert (
        "chunk-0-dataset.json: text_tokens: must be the text of a mapping" in CliRunner().invoke(app, arguments).output
    )


@pytest.mark.parametrize(
    ("text", "options", "error"),
    [
        (AZURE, [], "--arrival, --text-tokens, --output-tokens: is missing: give --format"),
        (
            BURSTGPT,
            ["--format", "azure"],
            "trace.csv line 1: TIMESTAMP: is missing: name the columns of the trace",
        ),
        ("", ["--format", "azure"], "trace.csv: contains no requests: give a trace with at least one"),
        (AZURE.splitlines()[0], ["--format", "azure"], "trace.csv: contains no requests: give a trace"),
        (
            "a,b\n",
            ["--format", "azure"],
            "trace.csv line 1: TIMESTAMP: is missing: name the columns of the trace (a, b)",
        ),
        (
            "when;in\n5;3\n",
            ["--format", "azure"],
            "line 1: TIMESTAMP: is missing: name the columns of the trace (when, in)",
        ),
        (AZURE.replace("396", "many"), ["--format", "azure"], "line 3: ContextTokens: 'many' is not a whole number"),
        (
            AZURE.replace("2023-11-16 18:15:50", "soon"),
            ["--format", "azure"],
            "neither a number nor a date and time",
        ),
        (AZURE.replace("18:15:50", "17:15:50"), ["--format", "azure"], "line 3: TIMESTAMP: is before the previous one"),
        (AZURE.replace("396", "-1"), ["--format", "azure"], "trace.csv line 3: text_tokens"),
        (AZURE.replace("396", "3.7"), ["--format", "azure"], "line 3: ContextTokens: '3.7' is not a whole number"),
        (AZURE.replace("396", "9" * 200_000), ["--format", "azure"], "trace.csv: is not valid CSV: field larger than"),
    ],
)
def test_a_wrong_trace_is_an_error_that_names_the_line(
    tmp_path: Path, text: str, options: list[str], error: str
) -> None:
    (trace := tmp_path / "trace.csv").write_text(text)

    result = run(trace, *options)

    assert result.exit_code == 1
    assert error in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_json_number_that_cannot_be_printed_is_refused(tmp_path: Path) -> None:
    (trace := tmp_path / "trace.jsonl").write_text(MOONCAKE.replace("396", "9" * 5000))

    result = run(trace, "--format", "mooncake")

    assert result.stderr == "error: trace.jsonl line 2: is not valid JSON: a number has 5000 characters\n"


@pytest.mark.parametrize("tokens", ["1e999", "3.7", "NaN", "9" * 400])
def test_json_numbers_that_are_no_counts_of_tokens_are_refused(tmp_path: Path, tokens: str) -> None:
    (trace := tmp_path / "trace.jsonl").write_text(MOONCAKE.replace("396", tokens))

    result = run(trace, "--format", "mooncake")

    assert result.exit_code == 1
    assert "trace.jsonl line 2: input_length: " in result.stderr
    assert result.stderr.endswith(" is not a whole number\n")


@pytest.mark.parametrize("arrival", ["1e999", "9" * 400])
def test_json_numbers_that_are_no_times_are_refused(tmp_path: Path, arrival: str) -> None:
    (trace := tmp_path / "trace.jsonl").write_text(MOONCAKE.replace("31250", arrival))

    result = run(trace, "--format", "mooncake")

    assert result.exit_code == 1
    assert result.stderr.startswith("error: trace.jsonl line 2: ")
    assert result.stderr.count("\n") == 1


def test_whole_numbers_may_have_a_decimal_point(tmp_path: Path) -> None:
    (trace := tmp_path / "trace.csv").write_text(AZURE.replace("396", "396.0"))

    assert run(trace, "--format", "azure").exit_code == 0
    assert [each.text_tokens for each in read_requests(tmp_path / "out.jsonl")] == [374, 396]


@pytest.mark.parametrize("output", ["trace.csv", "linked.csv", "folder/../trace.csv"])
def test_a_trace_is_not_replaced_by_its_requests(tmp_path: Path, output: str) -> None:
    (trace := tmp_path / "trace.csv").write_text(AZURE)
    (tmp_path / "linked.csv").symlink_to(trace)
    (tmp_path / "folder").mkdir()

    result = CliRunner().invoke(app, ["workload", "import", str(trace), str(tmp_path / output), "--format", "azure"])

    assert result.exit_code == 1
    assert result.stderr.endswith("is the trace or in its directory: write the requests to another file\n")
    assert trace.read_text() == AZURE


def test_requests_are_not_written_to_the_directory_of_a_trace(tmp_path: Path) -> None:
    out = servegen(tmp_path) / "chunk-0-trace.csv"
    trace = out.read_text()

    result = CliRunner().invoke(app, ["workload", "import", str(tmp_path), str(out), "--format", "servegen"])

    assert result.exit_code == 1
    assert out.read_text() == trace


def test_a_wrong_trace_changes_no_file(tmp_path: Path) -> None:
    (trace := tmp_path / "trace.csv").write_text(AZURE.replace("396", "many"))
    (requests := tmp_path / "out.jsonl").write_text("earlier")

    assert run(trace, "--format", "azure").exit_code == 1
    assert requests.read_text() == "earlier"
    assert {*tmp_path.iterdir()} == {trace, requests}


def test_a_result_without_details_is_refused(tmp_path: Path) -> None:
    (trace := tmp_path / "result.json").write_text('{"start_times": [1], "input_lens": []}')

    assert "run `vllm bench serve` with --save-detailed" in run(trace, "--format", "vllm").stderr
