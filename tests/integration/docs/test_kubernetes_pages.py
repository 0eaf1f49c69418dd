"""The pages about Kubernetes name existing values of the chart, and explain every reason of a condition."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from cornserve.app.record import FailureReason
from cornserve.kubernetes_resources.replica_reason import OBSTACLES, ReplicaReason
from tests.integration.docs.pages import ROOT

OPERATE = "docs/how-to/operate-on-kubernetes.md"
PAGES = ["docs/how-to/install-with-helm.md", OPERATE, "docs/reference/kubernetes-security.md", "README.md"]
VALUES = yaml.safe_load((ROOT / "helm/cornserve/values.yaml").read_text())


def _names(values: dict[str, Any], prefix: str = "") -> Iterator[str]:
    for name, value in values.items():
        yield prefix + name
        if isinstance(value, dict):
            yield from _names(value, f"{prefix}{name}.")


def _named_values(text: str) -> set[str]:
    first = "|".join(VALUES)
    quoted = re.findall(rf"`((?:{first})\.[A-Za-z.]*[A-Za-z])[:=`]", text)
    return {*quoted, *re.findall(r"--set ([A-Za-z.]+)=", text)}


@pytest.mark.parametrize("page", PAGES)
def test_the_chart_has_the_values_that_a_page_names(page: str) -> None:
    named = _named_values((ROOT / page).read_text())

    assert named
    assert named - {*_names(VALUES)} == set()


@pytest.mark.parametrize("reason", [*FailureReason, *OBSTACLES])
def test_the_table_of_alarms_has_a_reason(reason: str) -> None:
    assert f" | `{reason}` | " in (ROOT / "docs/reference/app-resource.md").read_text()


@pytest.mark.parametrize("reason", [*FailureReason, *ReplicaReason])
def test_the_page_on_operation_explains_a_reason(reason: str) -> None:
    rows = re.findall(r"^\| (`[A-Z].*?) \| .+ \| .+ \|$", (ROOT / OPERATE).read_text(), re.MULTILINE)

    assert f"`{reason}`" in ", ".join(rows).split(", ")
