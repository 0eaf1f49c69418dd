"""Every command of the README and of docs/ is run, top to bottom, against the real thing."""

from __future__ import annotations

import subprocess
from itertools import chain
from pathlib import Path

import pytest

from tests.integration.docs.pages import ROOT, blocks, pages, sections
from tests.integration.docs.reader import Reader

ON_MY_OWN = [
    "docs/how-to/deploy-an-app.md",
    "docs/how-to/add-a-unit-task.md",
    "docs/how-to/limit-requests.md",
    "docs/how-to/put-it-on-a-network.md",
    "docs/how-to/send-images.md",
    "docs/planner.md",
    "docs/reference/executor-contract.md",
    "docs/reference/plans.md",
    "docs/reference/profiles.md",
    "docs/reference/transport.md",
    "docs/reference/workloads.md",
]
WITH_MODELS = ["docs/how-to/serve-a-multimodal-model.md"]
WITH_AN_INSTANCE = ["docs/reference/task-api.md", "docs/reference/sdk.md"]
"""Pages for which Cornserve runs already."""
AFTER_THE_README = [
    "docs/how-to/write-a-task.md",
    "docs/how-to/serve-a-language-model.md",
    "docs/how-to/use-the-sdk.md",
    "docs/how-to/measure-an-app.md",
    "docs/how-to/observe.md",
    "docs/reference/http-api.md",
]
"""Pages that go on with the model that the README deploys."""

LANGUAGES = ("bash", "console", "csv", "json", "python", "text", "toml", "yaml")

NOT_RUN_AT_ALL = [
    "docs/how-to/install-without-cuda.md",  # changes what is installed
    "docs/performance.md",  # takes a machine that does nothing else
    "docs/reproduction.md",  # checked by tests/integration/benchmarks
]
NOT_RUN = {
    "README.md": ["make run", "make test"],
    "docs/getting-started.md": ["make run"],  # run below
    "docs/how-to/observe.md": ["OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4317 cornserve up"],  # takes a collector
    "docs/how-to/deploy-an-app.md": [  # take a model hub
        "cornserve deploy ~/models/Qwen3-0.6B",
        "cornserve deploy Qwen/Qwen3-0.6B --name qwen",
    ],
}
"""All commands that no test runs as they stand."""


def test_every_block_is_run_or_listed_as_an_exception() -> None:
    run = {"README.md", *ON_MY_OWN, *WITH_MODELS, *WITH_AN_INSTANCE, *AFTER_THE_README}
    looked_at = [page for page in pages() if page not in NOT_RUN_AT_ALL]
    found = {page: blocks(page) for page in looked_at}

    assert {page for page in looked_at if any(block.runs for block in found[page])} == run
    assert {
        page: [line.removeprefix("$ ") for block in consoles for line in block.code.splitlines()]
        for page in looked_at
        if (consoles := [block for block in found[page] if block.language == "console"])
    } == NOT_RUN
    for block in chain.from_iterable(found.values()):
        assert block.language in LANGUAGES, f"{block}: {block.language}"
        assert block.included is None or (ROOT / block.included).is_file(), f"{block} includes what is not there"


@pytest.mark.parametrize("page", ON_MY_OWN)
def test_a_page_works_from_top_to_bottom(page: str, tmp_path: Path) -> None:
    Reader(tmp_path).try_out(blocks(page), seconds=150)


@pytest.mark.parametrize("page", WITH_AN_INSTANCE)
def test_a_page_works_while_cornserve_runs(page: str, tmp_path: Path) -> None:
    Reader(tmp_path).try_out(blocks(page), seconds=150, up=True)


@pytest.mark.timeout(600)
def test_the_readme_works_and_what_a_newcomer_reads_next(tmp_path: Path, smollm2: Path) -> None:
    tour = sections("README.md", end="### Stop")
    more = [block for page in AFTER_THE_README for block in blocks(page)]
    stop = sections("README.md", start="### Stop")

    Reader(tmp_path, model=smollm2).try_out([*tour, *more, *stop], seconds=500)


@pytest.mark.timeout(500)
@pytest.mark.parametrize("page", WITH_MODELS)
def test_a_page_works_that_makes_a_model_of_its_own(page: str, tmp_path: Path) -> None:
    Reader(tmp_path).try_out(blocks(page), seconds=400)


@pytest.mark.timeout(400)
def test_make_run_answers_and_leaves_nothing_running(tmp_path: Path, smollm2: Path) -> None:
    reader = Reader(tmp_path, model=smollm2)

    done = subprocess.run(
        ["make", "run", "ONCE=1"],
        cwd=ROOT,
        env=reader.environment,
        capture_output=True,
        text=True,
        timeout=350,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "Paris" in done.stdout
    assert not (reader.cornserve_home / "instance.json").exists()
    assert [path.name for path in (reader.cornserve_home / "replicas").iterdir()] == ["ended"]
