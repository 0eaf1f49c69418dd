"""Runs every command of the README and of docs/ against a real instance."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest

from tests.integration.docs.page_runner import PageRunner
from tests.integration.docs.pages import ROOT, blocks, pages
from tests.integration.docs.pages_instance import PagesInstance

ON_THE_INSTANCE = [
    "docs/how-to/autoscale-an-app.md",
    "docs/how-to/draw-in-chats.md",
    "docs/how-to/generate-images.md",
    "docs/how-to/generate-speech.md",
    "docs/how-to/measure-an-app.md",
    "docs/how-to/observe.md",
    "docs/how-to/route-requests.md",
    "docs/how-to/run-the-demo.md",
    "docs/how-to/serve-a-language-model.md",
    "docs/how-to/serve-lora-adapters.md",
    "docs/how-to/set-latency-targets.md",
    "docs/how-to/speak-responses.md",
    "docs/how-to/transcribe-speech.md",
    "docs/how-to/use-the-console.md",
    "docs/how-to/use-the-sdk.md",
    "docs/how-to/write-a-task.md",
    "docs/how-to/write-an-agent.md",
    "docs/reference/http-api.md",
    "docs/reference/sdk.md",
    "docs/reference/task-api.md",
]
"""Pages that share the instance and the model of `make run`."""
ALONE = [
    "docs/how-to/adapt-to-the-load.md",
    "docs/how-to/add-a-unit-task.md",
    "docs/how-to/deploy-a-plan.md",
    "docs/how-to/deploy-an-app.md",
    "docs/how-to/edit-images.md",
    "docs/how-to/limit-requests.md",
    "docs/how-to/plan-an-app.md",
    "docs/how-to/profile-an-app.md",
    "docs/how-to/put-it-on-a-network.md",
    "docs/how-to/recover.md",
    "docs/how-to/run-as-a-service.md",
    "docs/how-to/send-media.md",
    "docs/how-to/serve-a-multimodal-model.md",
    "docs/how-to/simulate-a-plan.md",
    "docs/how-to/test-a-task.md",
    "docs/planner.md",
    "docs/reference/executor-contract.md",
    "docs/reference/models.md",
    "docs/reference/plans.md",
    "docs/reference/profiles.md",
    "docs/reference/transport.md",
    "docs/reference/workloads.md",
]
"""Pages that need no instance, install a package, or start instances with other options."""
SLOW = {
    # Start engines in addition to that of `make run`.
    "docs/how-to/draw-in-chats.md",
    "docs/how-to/edit-images.md",
    "docs/how-to/generate-images.md",
    "docs/how-to/generate-speech.md",
    "docs/how-to/run-the-demo.md",
    "docs/how-to/serve-a-language-model.md",
    "docs/how-to/serve-a-multimodal-model.md",
    "docs/how-to/serve-lora-adapters.md",
    "docs/how-to/speak-responses.md",
    "docs/how-to/transcribe-speech.md",
    # Generate hundreds of tokens, run forty commands, or plan for many models.
    "docs/how-to/deploy-an-app.md",
    "docs/how-to/measure-an-app.md",
    "docs/how-to/send-media.md",
    "docs/how-to/write-a-task.md",
    "docs/planner.md",
    # Start an instance for one limit, two to six instances, or measure.
    "docs/how-to/adapt-to-the-load.md",
    "docs/how-to/add-a-unit-task.md",
    "docs/how-to/deploy-a-plan.md",
    "docs/how-to/limit-requests.md",
    "docs/how-to/profile-an-app.md",
    "docs/how-to/put-it-on-a-network.md",
    "docs/how-to/recover.md",
    "docs/how-to/run-as-a-service.md",
    # Run commands, or use an API, that faster tests also run.
    "docs/how-to/autoscale-an-app.md",
    "docs/how-to/plan-an-app.md",
    "docs/how-to/route-requests.md",
    "docs/how-to/set-latency-targets.md",
    "docs/how-to/simulate-a-plan.md",
    "docs/how-to/test-a-task.md",
    "docs/how-to/use-the-sdk.md",
    "docs/how-to/write-an-agent.md",
    "docs/reference/http-api.md",
    "docs/reference/plans.md",
    "docs/reference/profiles.md",
    "docs/reference/sdk.md",
    "docs/reference/task-api.md",
    "docs/reference/workloads.md",
}
"""Pages that run in the slow tier."""

LANGUAGES = ("bash", "console", "csv", "ini", "json", "python", "text", "toml", "yaml")

NOT_RUN_PAGES = [
    "docs/how-to/package-a-unit-task.md",  # checked by tests/cluster/images
    "docs/reference/images.md",  # checked by tests/cluster/images
    "docs/how-to/install-without-cuda.md",  # changes what is installed
    "docs/how-to/install-with-helm.md",  # needs a cluster: tests/integration/kubernetes/chart renders the chart
    "docs/how-to/try-kubernetes.md",  # checked by tests/cluster/apps
    "docs/how-to/use-argo-cd.md",  # needs Argo CD; the files are checked by tests/unit/kubernetes_resources
    "docs/how-to/operate-on-kubernetes.md",  # needs a cluster
    "docs/how-to/use-the-cli-with-a-cluster.md",  # needs a cluster
    "docs/reference/app-resource.md",  # needs a cluster; the examples are checked by tests/integration/kubernetes
    "docs/how-to/upgrade-vllm.md",  # changes what is installed
    "docs/how-to/check-a-gpu.md",  # checked by tests/integration/benchmarks
    "docs/performance.md",  # needs an idle machine
    "docs/reference/gpu-assumptions.md",  # installs the packages for GPUs
    "docs/reproduction.md",  # checked by tests/integration/benchmarks
    "docs/simulated-figures.md",  # checked by tests/integration/benchmarks
]
REGISTRY = "registry.example.com/ml"
NOT_RUN = {
    "docs/how-to/autoscale-an-app.md": [
        "cornserve deploy chat.py --autoscale llm:1-4 --ttft 2 --profile profile.yaml --workload day.jsonl",
        (
            "cornserve deploy chat.py --gpus 8 --workload day.jsonl --profile profile.yaml --ttft 2 "
            "--autoscale encoder --autoscale llm"
        ),
    ],
    "README.md": [
        "make run",
        "make test",
        "make chaos",
        "make families",
        "make clients",
        "helm install cornserve-crds helm/cornserve-crds",  # these need a cluster
        f"helm install cornserve helm/cornserve --namespace team-a --create-namespace --set images.registry={REGISTRY}",
        "cornserve --namespace team-a deploy Qwen/Qwen3-0.6B",
        'cornserve --namespace team-a chat qwen3-0.6b "Hello!"',
    ],
    "docs/getting-started.md": ["make run"],  # test_make_run.py runs it
    "docs/how-to/measure-an-app.md": [  # needs a server of vLLM
        (
            "cornserve bench Qwen/Qwen2.5-VL-7B-Instruct --server vllm --url http://127.0.0.1:8001 "
            "--workload chats.jsonl --recorded"
        )
    ],
    "docs/how-to/observe.md": ["OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4317 cornserve up"],  # needs a collector
    "docs/how-to/test-on-kubernetes.md": [  # need root; run by hand
        "make programs",
        "make cluster",
        "make test-cluster",
        "make test-cluster VLLM=1",
        'CHAOS_FULL=1 .venv/bin/python -m pytest -m "cluster and chaos" tests/cluster/chaos',
        "make test-cluster CONTEXT=kind-kind",
        ".venv/bin/python -m scripts.cluster load image.tar",
        "make cluster-down",
    ],
    "docs/how-to/run-as-a-service.md": [  # need root and systemd
        "# useradd --system --home-dir /var/lib/cornserve cornserve",
        "# cp cornserve.service /etc/systemd/system/",
        "# systemctl daemon-reload",
        "# systemctl enable --now cornserve",
        "# journalctl --unit cornserve --follow",
        "# systemctl stop cornserve",
        "# cd /opt/cornserve && git pull && make setup",
        "# systemctl start cornserve",
        "# sudo -u cornserve CORNSERVE_HOME=/var/lib/cornserve .venv/bin/cornserve doctor",
    ],
    "docs/how-to/generate-images.md": ["cornserve deploy Qwen/Qwen-Image --share split=1"],  # needs a model hub
    "docs/how-to/serve-a-language-model.md": [  # needs a model hub
        "cornserve deploy Qwen/Qwen3-8B --option tool_parser=hermes --option reasoning_parser=qwen3",
    ],
    "docs/reference/models.md": [  # tests/integration/cli/test_model_check.py runs it
        "cornserve models check ~/models/Qwen2.5-VL-3B-Instruct",
    ],
    "docs/how-to/classify-texts.md": [  # need models with weights
        "cornserve deploy ~/models/distilled-moods --name moods",
        (
            "curl http://127.0.0.1:8000/classify -d "
            """'{"model": "moods", "input": ["What a day!"]}' -H content-type:application/json"""
        ),
        "cornserve deploy ~/models/Skywork-Reward-Llama-3.1-8B --name reward --share classify=1",
    ],
    "docs/how-to/transcribe-speech.md": [  # need a model with weights
        "cornserve deploy ~/models/Qwen3-ASR-1.7B --name asr --share transcribe=1",
        "cornserve deploy ~/models/Qwen3-ASR-1.7B --name chat",
    ],
    "docs/how-to/deploy-an-app.md": [  # need a model hub
        "cornserve deploy ~/models/Qwen3-0.6B",
        "cornserve deploy Qwen/Qwen3-0.6B --name qwen",
    ],
}
"""Commands that no test runs as written."""


def test_every_block_is_run_or_listed_as_an_exception() -> None:
    run = {"README.md", *ON_THE_INSTANCE, *ALONE}
    checked = [page for page in pages() if page not in NOT_RUN_PAGES]
    found = {page: blocks(page) for page in checked}

    assert {page for page in checked if any(block.runs for block in found[page])} == run
    assert run >= SLOW
    assert {
        page: [line.removeprefix("$ ") for block in consoles for line in block.code.splitlines()]
        for page in checked
        if (consoles := [block for block in found[page] if block.language == "console"])
    } == NOT_RUN
    for block in chain.from_iterable(found.values()):
        assert block.language in LANGUAGES, f"{block}: {block.language}"
        assert block.included is None or (ROOT / block.included).is_file(), f"{block} includes a missing file"


def _by_tier(pages: list[str]) -> list[object]:
    return [pytest.param(page, marks=[pytest.mark.slow] if page in SLOW else []) for page in pages]


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory, smollm2: Path) -> Iterator[PagesInstance]:
    directory = tmp_path_factory.mktemp("instance")
    with (
        PageRunner(directory, model=smollm2).running() as runner,
        PagesInstance(runner, directory / "make-run").running() as instance,
    ):
        yield instance
    assert not (runner.cornserve_home / "instance.json").exists()
    assert [path.name for path in (runner.cornserve_home / "replicas").iterdir()] == ["ended"]


@pytest.mark.timeout(400)
def test_make_run_responds(instance: PagesInstance) -> None:
    assert "Paris" in instance.output()


@pytest.mark.timeout(400)
def test_the_readme_runs(instance: PagesInstance) -> None:
    instance.run_readme()


@pytest.mark.timeout(400)
@pytest.mark.parametrize("page", _by_tier(ON_THE_INSTANCE))
def test_a_page_runs_on_the_instance_of_make_run(instance: PagesInstance, page: str) -> None:
    instance.run(page)


@pytest.mark.timeout(400)
@pytest.mark.parametrize("page", _by_tier(ALONE))
def test_a_page_runs_alone(page: str, tmp_path: Path) -> None:
    with PageRunner(tmp_path).running() as runner:
        runner.run(blocks(page), seconds=300)
