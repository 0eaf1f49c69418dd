"""Checks of the cluster: its version, the namespace, the CRDs and the permissions."""

from __future__ import annotations

import re

from cornserve.cli.check_result import CheckResult
from cornserve.cli.cluster_doctor.facts import ClusterFacts, Missing

OLDEST_VERSION = (1, 30)
"""The oldest supported version of Kubernetes: CEL rules of CRDs and admission policies, sleep before a pod ends."""

POD_SECURITY = "pod-security.kubernetes.io/enforce"


def version_check(facts: ClusterFacts) -> CheckResult:
    match = re.match(r"v?(\d+)\.(\d+)", facts.version)
    version = (int(match[1]), int(match[2])) if match else (0, 0)
    oldest = ".".join(map(str, OLDEST_VERSION))
    return CheckResult(
        "Kubernetes",
        version >= OLDEST_VERSION,
        f"{facts.version} at {facts.host}",
        f"Cornserve needs Kubernetes {oldest} or later: upgrade the cluster",
        is_essential=True,
    )


def namespace_check(facts: ClusterFacts) -> CheckResult:
    name = facts.namespace_name
    match facts.namespace:
        case None:
            return CheckResult("namespace", True, f"{name}; you may not read its Pod Security level")
        case Missing():
            remedy = f"create it with `kubectl create namespace {name}`, or give another with --namespace"
            return CheckResult("namespace", False, f"{name} does not exist", remedy, is_essential=True)
        case namespace:
            level = pod_security(namespace)
            return CheckResult("namespace", True, f"{name}, Pod Security {level}")


def pod_security(namespace: object) -> str:
    """Returns the level that the namespace enforces."""
    labels = namespace["metadata"].get("labels", {}) if isinstance(namespace, dict) else {}
    return str(labels.get(POD_SECURITY, "privileged"))


def crd_check(facts: ClusterFacts) -> CheckResult:
    from cornserve.kubernetes_resources.schema_check import OutdatedCrdError, check_schemas

    try:
        check_schemas(facts.schemas)
    except OutdatedCrdError as error:
        found, _, remedy = str(error).rpartition(": ")
        return CheckResult("CRDs", False, found, remedy, is_essential=True)
    return CheckResult("CRDs", True, "current")


def permission_check(facts: ClusterFacts) -> CheckResult:
    missing = facts.missing_permissions
    return CheckResult(
        "permissions",
        not missing,
        f"missing: {', '.join(map(str, missing))}" if missing else "commands can reach the gateway",
        "ask an administrator to bind you to the Role with the label app.kubernetes.io/component=cli: "
        f"`kubectl create rolebinding NAME --role=ROLE --user=YOU -n {facts.namespace_name}`",
        is_essential=any(permission.is_essential for permission in missing),
    )
