"""kube-score finds nothing in the manifests without a written reason."""

from __future__ import annotations

import json
import subprocess

from scripts.cluster.programs import KUBERNETES_VERSION, ROOT, program
from tests.kubernetes.helm import CHART, render

GOOD_GRADE = 10

REASONS = {
    ("container-image-pull-policy", "*"): "images have fixed tags or digests, and may be loaded into nodes",
    ("pod-networkpolicy", "cornserve-gateway"): "egress is restricted if `networkPolicies.egress.enabled` is set",
    ("pod-networkpolicy", "cornserve-controller"): "the same",
    ("pod-networkpolicy", "cornserve-test"): "the same",
    ("pod-networkpolicy", "cornserve-secrets-1"): "the pod accepts no connections and ends after a few requests",
    ("networkpolicy-targets-pod", "cornserve-executor"): "the controller creates the pods",
    ("networkpolicy-targets-pod", "cornserve-requests"): "the controller and `helm test` create the pods",
    ("container-security-context-user-group-id", "node-directories"): "only root can create directories for others",
}
"""The accepted findings: check and name of the object, or `*`."""

OPTIONAL_CHECKS = ("container-seccomp-profile", "container-ports-check")


def findings(manifests: str) -> set[tuple[str, str, str]]:
    """Returns check, name of the object and explanation of each finding."""
    minor_version = "v" + KUBERNETES_VERSION.rpartition(".")[0]
    command = [str(program("kube-score")), "score", "--output-format=json", f"--kubernetes-version={minor_version}"]
    command += ["--ignore-container-cpu-limit"]  # a CPU limit stops an event loop for parts of a second
    command += [f"--enable-optional-test={check}" for check in OPTIONAL_CHECKS]
    output = subprocess.run([*command, "-"], input=manifests, capture_output=True, text=True, check=False).stdout
    return {
        (check["check"]["id"], scored["object_meta"]["name"], f"{check['check']['name']}: {comment['summary']}")
        for scored in json.loads(output) or []
        for check in scored["checks"] or []
        if not check["skipped"] and check["grade"] < GOOD_GRADE
        for comment in check["comments"] or [{"summary": ""}]
    }


OPTIONS = "internalTls.enabled=true,gateway.ingress.enabled=true,gateway.autoscaling.enabled=true"


def test_the_linter_finds_nothing_without_a_reason() -> None:
    rendered = [render(), render("--values", CHART / "values-gpu.yaml"), render("--set", OPTIONS)]
    manifests = [file.read_text() for file in (ROOT / "kubernetes" / "manifests").glob("*.yaml")]

    found = set().union(*map(findings, [*rendered, *manifests]))

    unexpected = {finding for finding in found if not {(finding[0], "*"), finding[:2]} & REASONS.keys()}
    matched = {key for finding in found for key in ((finding[0], "*"), finding[:2])}
    assert not unexpected
    assert REASONS.keys() <= matched, "these reasons match no finding"
