"""Checks of the pods of an installation, and of the leader of its controllers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from cornserve.cli.check_result import CheckResult
from cornserve.cli.cluster_doctor.facts import ClusterFacts
from cornserve.cli.cluster_doctor.resource_checks import cluster_settings
from cornserve.kubernetes.endpoint_slices import has_ready_endpoint
from cornserve.kubernetes.pods import is_pod_ready, pod_problem
from cornserve.kubernetes.resources import JsonObject
from cornserve.kubernetes_resources.labels import COMPONENT_LABEL, EXECUTOR_LABEL

_REMEDIES = {
    "ErrImagePull": "make its image available to the nodes: see the values images.registry and images.pullSecrets",
    "ErrImageNeverPull": "load its image on the nodes, or set the value images.pullPolicy",
    "InvalidImageName": "correct the name of its image in the values of the chart",
    "Unschedulable": "free the resources that it requests, add nodes, or lower the requests in the values of the chart",
    "CreateContainerConfigError": "create the Secret or ConfigMap that it names",
}
_REMEDIES["ImagePullBackOff"] = _REMEDIES["ErrImagePull"]


def component_check(facts: ClusterFacts, component: str) -> CheckResult:
    """Checks that the component has a ready pod."""
    if facts.pods is None:
        return CheckResult(component, True, "unknown: you may not list pods")
    pods = facts.component(component)
    if not pods:
        return CheckResult(
            component,
            False,
            f"not installed in the namespace {facts.namespace_name}",
            f"install Cornserve: `helm install cornserve helm/cornserve -n {facts.namespace_name}`",
            is_essential=True,
        )
    ready = sum(map(is_pod_ready, pods))
    return _pods_result(facts, component, pods, is_essential=ready == 0)


def executor_check(facts: ClusterFacts) -> CheckResult:
    """Checks that all executors are ready, and that gateways can find them."""
    if facts.pods is None:
        return CheckResult("executors", True, "unknown: you may not list pods")
    pods = facts.component("executor")
    if not pods:
        return CheckResult("executors", True, "none: no app is deployed")
    result = _pods_result(facts, "executors", pods, is_essential=False)
    lost = _lost_executors(facts, pods)
    if not lost:
        return result
    remedy = (
        f"the controller restores the Service {lost[0]}: see `kubectl describe service {lost[0]} "
        f"-n {facts.namespace_name}` and `kubectl logs -l {COMPONENT_LABEL}=controller -n {facts.namespace_name}`"
    )
    found = f"{result.found}; no EndpointSlice contains those of {', '.join(lost)}, so gateways cannot find them"
    return CheckResult("executors", False, found, remedy)


def _lost_executors(facts: ClusterFacts, pods: list[JsonObject]) -> list[str]:
    """Returns the executors with ready pods that no EndpointSlice contains."""
    if facts.endpoint_slices is None:
        return []
    slices = filter(has_ready_endpoint, facts.endpoint_slices)
    found = {each["metadata"]["labels"].get(EXECUTOR_LABEL) for each in slices}
    ready = {pod["metadata"]["labels"].get(EXECUTOR_LABEL) for pod in pods if is_pod_ready(pod)}
    return sorted(filter(None, ready - found))


def _pods_result(facts: ClusterFacts, name: str, pods: list[JsonObject], *, is_essential: bool) -> CheckResult:
    problems = [(pod, pod_problem(pod)) for pod in pods if not is_pod_ready(pod)]
    found = f"{len(pods) - len(problems)} of {len(pods)} pods ready"
    if not problems:
        return CheckResult(name, True, found)
    pod, problem = problems[0]
    pod_name = pod["metadata"]["name"]
    return CheckResult(
        name,
        False,
        f"{found}; {pod_name}: {problem}",
        _REMEDIES.get(problem.partition(":")[0])
        or f"see `kubectl describe pod {pod_name} -n {facts.namespace_name}` and `kubectl logs {pod_name} "
        f"-n {facts.namespace_name} --previous`",
        is_essential=is_essential,
    )


def leader_check(facts: ClusterFacts, now: datetime | None = None) -> CheckResult:
    """Checks that one of the controllers leads."""
    if facts.leases is None or facts.settings is None:
        return CheckResult("leader", True, "unknown: you may not list Leases and ConfigMaps")
    name = f"{cluster_settings(facts).get('instance')}-controller"
    lease = next((lease for lease in facts.leases if lease["metadata"]["name"] == name), None)
    holder = lease and lease["spec"].get("holderIdentity")
    remedy = (
        f"apps are not deployed until a controller leads: see `kubectl logs -l {COMPONENT_LABEL}=controller "
        f"-n {facts.namespace_name}`"
    )
    if lease is None or not holder:
        return CheckResult("leader", False, "no controller leads", remedy)
    renewed = datetime.fromisoformat(lease["spec"]["renewTime"])
    age = (now or datetime.now(UTC)) - renewed
    is_current = age < timedelta(seconds=2 * lease["spec"]["leaseDurationSeconds"])
    found = holder if is_current else f"{holder} has not renewed its Lease for {age.total_seconds():.0f} s"
    return CheckResult("leader", is_current, found, remedy)
