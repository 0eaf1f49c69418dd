"""The benchmarks run, so that the figures in docs/performance.md can be reproduced. Tests do not assert speed.

`make test` runs the benchmarks without an instance.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.kubernetes.api_server import require_programs
from tests.models.tiny_families import tiny_model
from tests.programs import require_program

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"

pytestmark = pytest.mark.timeout(420)  # Some start several engines, which takes minutes if other tests use the cores.


def run(script: str, *options: str) -> Any:
    command = [sys.executable, str(BENCHMARKS / script), "--quick", "--json", *options]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=400).stdout)


@pytest.mark.slow
def test_record_and_replay_are_compared_with_plain_calls() -> None:
    report = run("record_replay.py")

    assert report["machine"]["cores"] >= 1
    assert {(row["shape"], row["invocations"]) for row in report["rows"]} == {
        (shape, size) for shape in ("fan-out", "chain of tensors", "chain of values") for size in (1, 10, 100)
    }
    assert {row["runs"] for row in report["rows"] if row["shape"] != "chain of values"} == {1}
    assert all(row["record"]["min"] > 0 and row["plain"]["min"] > 0 for row in report["rows"])
    assert [(row["path"], row["request"]) for row in report["dry_records"]] == [
        (path, request) for path in ("monolith", "e-l", "e-el") for request in ("text", "image", "video", "image+video")
    ]
    assert all(row["timing"]["min"] > 0 for row in report["dry_records"])


@pytest.mark.slow
def test_the_gateway_is_compared_with_direct_calls_and_peers_and_sampled(tmp_path: Path) -> None:
    stacks = tmp_path / "stacks"
    peers = ("fastapi-aiohttp", "asgi-aiohttp", "raw-uvloop")  # vllm-router must be installed separately.

    report = run("gateway.py", "--profile", str(stacks), "--peers", *peers)

    assert [(row["mode"], row["concurrency"]) for row in report["rows"]] == [("whole", 8), ("stream", 8), ("paced", 8)]
    for row in report["rows"]:
        assert row["gateway"]["requests"] > 0
        assert row["executor"]["requests"] > 0
        assert {name: result["requests"] > 0 for name, result in row["peers"].items()} == dict.fromkeys(peers, True)
        assert {name: ratio > 0 for name, ratio in row["peer_ratios"].items()} == dict.fromkeys(peers, True)
    assert report["rss_mib"][0] > 0
    assert set(report["peers_rss_mib"]) == set(peers)
    assert "Runner.run" in stacks.read_text()


@pytest.mark.slow
def test_the_steps_of_an_agent_arrive_as_they_happen() -> None:
    rows = run("agent.py")["rows"]

    assert [row["turns"] for row in rows] == [10, 200]
    for row in rows:
        assert 0 < row["first_step_seconds"] < row["half_seconds"] < row["streamed_seconds"]


@pytest.mark.slow
def test_runs_in_app_hosts_are_compared_with_runs_in_the_gateway() -> None:
    report = run("app_host.py")

    assert all(figure > 0 for figure in report["start"].values())
    assert [(row["process"], row["is_typed"]) for row in report["runs"]] == [
        (process, is_typed) for process in ("gateway", "app host") for is_typed in (False, True)
    ]
    assert all(row["p50_us"] > 0 and row["gateway_cpu_us"] > 0 for row in report["runs"])


@pytest.mark.slow
def test_routing_policies_are_compared_with_queries(tmp_path: Path) -> None:
    plot = tmp_path / "routing.svg"

    report = run("routing.py", "--plot", str(plot))

    assert {(row["policy"], row["replicas"]) for row in report["rows"]} == {
        (policy, size) for policy in ("static", "power-of-two", "least-loaded", "queries") for size in (2, 4)
    }
    assert all(row["requests"] > 0 and row["cpu_us"] > 0 and row["mean_response"] >= 1 for row in report["rows"])
    assert plot.read_text().startswith("<?xml")


def test_handshakes_are_compared_with_plain_connections() -> None:
    report = run("handshake.py")

    assert [row["kind"] for row in report["rows"]] == ["no handshake", "handshake", "handshake and TLS"]
    assert all(row["p50_us"] > 0 and row["connecting_cpu_us"] > 0 for row in report["rows"])


@pytest.mark.slow
def test_generated_images_are_measured_through_the_gateway(tiny_qwenimage: Path) -> None:
    figures = run("generation.py", "--painter", str(tiny_qwenimage))["painter"]

    assert all(0 < figures[figure] < figures["streamed"] for figure in ("first", "preview"))
    assert min(figures[figure] for figure in ("whole", "alone", "concurrent")) > 0


@pytest.mark.slow
def test_transfers_of_tensors_are_compared_with_plain_copies() -> None:
    report = run("transport.py")

    assert {row["size"] for row in report["rows"] if row["nodes"] == 1} == {"64 KiB", "4.5 MiB"}
    for row in report["rows"]:
        assert min(row[figure]["min"] for figure in ("hop", "own", "memcpy", "baseline", "chunk")) > 0
        assert row["stream_gb_per_s"] > 0
        assert len(row["loads"]) == 3
        assert row["idle_cores"] < 0.5


@pytest.mark.slow
def test_pulls_by_ucx_are_compared_with_its_benchmark() -> None:
    pytest.importorskip("ucxx", exc_type=ImportError)

    for row in run("transport.py", "--protocol", "ucx")["rows"]:  # one node without the permission for namespaces
        assert row["protocol"] == "ucx"
        assert min(row["perftest_gb_per_s"], row["sleeping_perftest_gb_per_s"]) > 0
        assert row["idle_cores"] < 0.5


@pytest.mark.slow
def test_the_planner_is_measured_with_both_solvers() -> None:
    report = run("planner.py")

    assert {(row["size"], row["engine"]) for row in report["cells"]} == {
        (size, engine)
        for size in ("two components", "four components", "six components")
        for engine in ("highs", "cbc")
    }
    for row in (*report["cells"], *report["rates"]):
        assert row["wall"]["longest"] >= row["wall"]["median"] > 0
        assert row["worst_gap"] >= 0
    assert "qwen2.5-omni-7b" in {row["model"] for row in report["models"]}
    assert report["mixtures"][0]["gpus"] == 1_000_000
    assert report["quality"]["mean_to_direct"] >= 1


def test_the_simulator_is_measured_on_several_numbers_of_gpus() -> None:
    report = run("simulator.py")

    assert [row["gpus"] for row in report["rows"]] == [64, 256]
    for row in report["rows"]:
        assert row["requests"] == 500
        assert row["simulated_seconds"] > row["p99_seconds"] > 0


def test_simulations_are_compared_with_measured_loads() -> None:
    rows = run("validation.py", "V3")["V3"]

    assert [(row["policy"], row["replicas"]) for row in rows] == [("least-loaded", 2), ("least-tokens", 2)]
    for row in rows:
        assert row["requests"] == 5
        for figures in (row["simulated"], row["measured"]):
            assert figures["p99"] >= figures["mean"] >= 0.14  # The time of a replica for a request.
        assert row["differences"].keys() == row["noise"].keys() == {"throughput", "mean", "p99"}


@pytest.mark.slow
def test_simulated_failures_are_compared_with_those_of_an_instance() -> None:
    (row,) = run("validation.py", "V5")["V5"]

    assert (row["change"], row["run"], row["requests"]) == ("failure", 1, 148)
    assert row["measured"]["failed"] == row["simulated"]["failed"] == 0
    assert row["startup"] > 0
    assert min(row[side]["mean"] for side in ("measured", "simulated")) >= 0.05  # The time of a replica for a request.
    assert row["differences"].keys() == {"recovery", "failed", "mean"}


@pytest.mark.slow
def test_the_simulator_is_compared_with_theory_steps_and_decisions() -> None:
    report = run("validation.py", "V0", "V1", "V2")

    for case in ("V0", "V1", "V2"):
        (row,) = report[case]
        assert row["passed"] > 0
        assert not row["failed"]


@pytest.mark.slow
def test_simulations_are_compared_with_engines(tiny_llama: Path, tiny_qwen25vl: Path) -> None:
    rows = run("validation.py", "V4", "--text-model", str(tiny_llama), "--image-model", str(tiny_qwen25vl))["V4"]

    assert [row["load"] for row in rows] == [0.5, 0.5]
    for row in rows:
        assert row["measured"].keys() == row["simulated"].keys() == {"throughput", "tpot", "ttft p50", "ttft p90"}
        assert min(*row["measured"].values(), *row["simulated"].values()) > 0


@pytest.mark.slow
def test_latency_targets_are_compared_with_none(tiny_qwen25vl: Path) -> None:
    report = run("latency_targets.py", "--image-model", str(tiny_qwen25vl))

    assert [(row["mode"], row["concurrency"]) for row in report["cpu"]] == [("whole", 8), ("stream", 8)]
    for row in report["cpu"]:
        assert min(row["without_us"], row["with_us"]) > 0
    (row,) = report["texts"]
    assert row["texts"] > 10
    assert min(*row["without"], *row["with_targets"]) > 0


@pytest.mark.slow
def test_the_coverage_of_intervals_is_measured() -> None:
    report = run("interval_coverage.py")

    assert {row["kind"] for row in report["rows"]} == {"additive", "overlapping", "interfering"}
    for row in report["rows"]:
        assert row["inside"] > 0.5
        assert row["width"] > 0


@pytest.mark.slow
def test_strategies_are_profiled_planned_deployed_and_measured() -> None:
    report = run("strategies.py")

    (row,) = report["results"]
    assert (row["strategy"], row["replicas"]) == ("separate", {"llm": 1, "encoder": 1})
    assert row["predicted"] > 0
    assert row["measured"][0] > 0
    assert row["p99"] >= row["p50"] > 0


@pytest.mark.slow
def test_an_app_is_measured_while_others_change() -> None:
    report = run("deployments.py")

    changes = {row["changes"]: row["completed"] for row in report["rows"]}
    assert changes.pop("none") == changes.pop("none, again") == 0
    assert changes.keys() == {"deployments", "failed deployments", "changed plans", "deletions"}
    assert all(completed > 0 for completed in changes.values())
    assert report["executors"] == 1


@pytest.mark.slow
def test_the_processes_of_idle_instances_are_measured() -> None:
    rows = run("idle.py")["rows"]

    numbers = {(row["phase"], row["processes"]): row["number"] for row in rows}
    phases = ("no app", "1 app", "2 apps", "2 tensor producers")
    assert {phase for phase, _ in numbers} == set(phases)
    assert {numbers[phase, kind] for phase in phases for kind in ("supervisor", "gateway", "controller")} == {1}
    assert [numbers.get((phase, "executors"), 0) for phase in phases] == [0, 1, 2, 3]
    assert all(row["pss_mib"] > 0 and row["wakeups"] >= 0 and row["cpu_percent"] >= 0 for row in rows)


@pytest.mark.slow
def test_a_model_is_compared_with_the_server_of_vllm(smollm2: Path) -> None:
    rows = run("vllm_server.py", str(smollm2))["rows"]

    assert [(row["api"], row["server"]) for row in rows] == [
        (api, server) for api in ("chat", "completions") for server in ("Cornserve", "vllm serve")
    ]
    assert all(row["requests_per_second"] > 0 for row in rows)


@pytest.mark.slow
def test_the_page_of_a_large_instance_is_drawn_and_updated_quickly() -> None:
    require_program("chromium")

    figures = run("console.py")

    assert figures["updates_per_second"] > 0
    assert figures["update_bytes"] > 0
    assert figures["idle_cpu_share"] < figures["cpu_share"] < 0.03  # CPU time: a busy machine does not change it much
    page = figures["page"]
    assert page["script_ms_per_update"] < 50
    assert 0 < page["first_paint_seconds"] <= page["rows_seconds"]


@pytest.mark.slow
def test_deployments_of_two_models_are_compared_with_imports_and_without(smollm2: Path, tiny_llama: Path) -> None:
    started, forked = run("second_model.py", str(tiny_llama), str(smollm2))["rows"]

    assert not started["forked"]
    assert forked["forked"]
    assert 0 < forked["second"]["cpu_seconds"] < started["second"]["cpu_seconds"]
    assert 0 < forked["second"]["pss_mib"] < started["second"]["pss_mib"]
    assert forked["pss_mib"] < started["pss_mib"]


@pytest.mark.slow
def test_prefill_and_decode_apart_are_compared_with_the_whole_model(tiny_llama: Path) -> None:
    report = run("prefill_decode.py", str(tiny_llama))
    rows = report["rows"]

    assert [row["placement"] for row in rows] == ["whole", "p-d"]
    assert all(figure > 0 for row in rows for name, figure in row.items() if name != "placement")
    assert sorted(copy["executor"].split("-")[0] for copy in report["kv_copies"]) == ["decode", "prefill"]
    assert all(figure > 0 for copy in report["kv_copies"] for name, figure in copy.items() if name != "executor")


@pytest.mark.slow
@pytest.mark.parametrize(("model", "modality"), [("gemma3", "image"), ("qwen2audio", "audio")])
def test_media_in_flight_are_compared_with_one(model: str, modality: str) -> None:
    report = run("encoders.py", str(tiny_model(model)), "--modality", modality, "--size", "2")

    assert report["load_cpu_seconds"] > 0
    assert [row["in_flight"] for row in report["figures"]] == [1, 8, 32]
    assert all(row["media_per_second"] > 0 and row["cpu_ms"] > 0 for row in report["figures"])


@pytest.mark.slow
def test_concurrent_speeches_are_compared_with_one_at_a_time(tiny_qwen3omni_talker: Path) -> None:
    figures = run("talker.py", str(tiny_qwen3omni_talker), "--concurrency", "2")["figures"]

    assert figures["alone_audio_seconds_per_second"] > 0
    assert figures["concurrent_audio_seconds_per_second"] > 0
    assert 0 < figures["first_samples_ms"] < figures["whole_speech_ms"]


@pytest.mark.slow
def test_the_control_plane_is_measured_on_a_cluster_with_fake_nodes() -> None:
    require_programs()

    report = run("kubernetes.py")

    assert [phase["phase"] for phase in report["phases"]] == ["deploy", "idle", "scale one app", "change one app"]
    for phase in report["phases"]:
        assert set(phase["processes"]) == {"API server", "controller", "gateway"}
        assert all(used["memory_mib"] > 0 for used in phase["processes"].values())
    deploy, idle, scale, _ = (phase["requests"] for phase in report["phases"])
    assert deploy["controller patch deployments"] >= 2
    assert scale["controller patch deployments"] == 1
    assert set(idle) <= {"controller update leases"}


@pytest.mark.slow
def test_images_next_to_long_media_are_compared_with_those_alone() -> None:
    report = run("media_fairness.py", str(tiny_model("qwen25vl")))

    [row] = report["rows"]
    assert row["concurrency"] == 8
    assert min(len(row["alone_ms"]), len(row["beside_ms"])) >= 64
    assert row["ratio"] > 0
    assert len(row["long_seconds"]) == 1


@pytest.mark.slow
def test_the_end_of_the_work_of_cancelled_requests_is_measured() -> None:
    report = run("media_cancellation.py", str(tiny_model("qwen25vl")), "--formats", "MP4")

    [row] = report["rows"]
    assert row["format"] == "MP4"
    assert row["complete_seconds"] > 0
    assert len(row["decoding_seconds"]) == len(row["free_seconds"]) <= 1
