"""The election of a leader with a Lease."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from cornserve.kubernetes.client import KubeClient
from cornserve.kubernetes.lease_election import LeaseElection, LeaseTimes
from cornserve.kubernetes.resources import LEASES, JsonObject
from tests.kubernetes.api_server_proxy import ApiServerProxy
from tests.loop_clock import LoopClock
from tests.waiting import until

TIMES = LeaseTimes()


class Candidate:
    def __init__(self, client: KubeClient, identity: str, times: LeaseTimes = TIMES) -> None:
        self.identity = identity
        self.election = LeaseElection(client, "controller", identity, times)
        self.works = False
        self.terms = 0
        """Number of times that its work has started."""

    async def work(self) -> None:
        self.works = True
        self.terms += 1
        try:
            await asyncio.Event().wait()
        finally:
            self.works = False

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.election.run(self.work))
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])


async def test_one_candidate_leads_and_releases_the_lease_at_its_end(kube_client: KubeClient) -> None:
    first, second = Candidate(kube_client, "first"), Candidate(kube_client, "second")
    async with second.running():
        async with first.running():
            await until(lambda: first.works or second.works)
            leader, other = (first, second) if first.works else (second, first)
            held = await kube_client.get(LEASES, "controller")
            assert held["spec"]["holderIdentity"] == leader.identity
            assert not other.works
        async with asyncio.timeout(TIMES.duration):  # earlier than the Lease expires
            await until(lambda: second.works)
    assert not second.works
    lease = await kube_client.get(LEASES, "controller")
    assert lease["spec"]["holderIdentity"] == ""


async def wait_until_renewed(client: KubeClient, before: JsonObject) -> JsonObject:
    """Returns the Lease as soon as its spec differs from an earlier one."""
    lease = before

    async def is_renewed() -> bool:
        nonlocal lease
        lease = await client.get(LEASES, "controller")
        return bool(lease["spec"] != before["spec"])

    await until(is_renewed)
    return lease


async def test_a_leader_renews_its_lease(kube_client: KubeClient, clock: LoopClock) -> None:
    # An advance may come while the leader still handles its last renewal: the deadline is several steps away.
    step, times = 100, LeaseTimes(duration=600, renew_deadline=500)
    first, second = Candidate(kube_client, "first", times), Candidate(kube_client, "second", times)
    async with first.running():
        await until(lambda: first.works)
        async with second.running():
            lease = await kube_client.get(LEASES, "controller")
            for _ in range(times.duration // step + 1):
                clock.advance(step)
                lease = await wait_until_renewed(kube_client, lease)
            assert (first.works, first.terms, second.terms) == (True, 1, 0)


@pytest.mark.parametrize("fault", ["stop", "silence"])
async def test_a_leader_that_cannot_renew_stops_before_another_leads(
    kube_client: KubeClient, proxied_client: KubeClient, api_server_proxy: ApiServerProxy, clock: LoopClock, fault: str
) -> None:
    cut_off, other = Candidate(proxied_client, "cut off"), Candidate(kube_client, "other")
    async with cut_off.running():
        await until(lambda: cut_off.works)
        async with other.running():
            if fault == "stop":
                await api_server_proxy.stop()
            else:
                api_server_proxy.silence()
            clock.advance(TIMES.renew_deadline)
            await until(lambda: not cut_off.works)
            assert not other.works
            await clock.advance_until(lambda: other.works, step=0.1)
            assert not cut_off.works


async def test_a_former_leader_can_lead_again(
    kube_client: KubeClient, proxied_client: KubeClient, api_server_proxy: ApiServerProxy, clock: LoopClock
) -> None:
    candidate = Candidate(proxied_client, "a")
    async with candidate.running():
        await until(lambda: candidate.works)
        await api_server_proxy.stop()
        clock.advance(TIMES.renew_deadline)
        await until(lambda: not candidate.works)
        await api_server_proxy.resume()
        await clock.advance_until(lambda: candidate.works, step=0.1)
        assert candidate.terms == 2


async def test_a_leader_keeps_its_lease_when_another_field_changes(kube_client: KubeClient, clock: LoopClock) -> None:
    candidate = Candidate(kube_client, "a")
    async with candidate.running():
        await until(lambda: candidate.works)
        annotated = await kube_client.merge_patch(LEASES, "controller", {"metadata": {"annotations": {"a": "b"}}})
        clock.advance(TIMES.renew_interval)
        await wait_until_renewed(kube_client, annotated)
        assert (candidate.works, candidate.terms) == (True, 1)


async def test_a_leader_whose_lease_is_taken_stops(kube_client: KubeClient, clock: LoopClock) -> None:
    candidate = Candidate(kube_client, "a")
    async with candidate.running():
        await until(lambda: candidate.works)
        taken = {"holderIdentity": "thief", "leaseDurationSeconds": 100}
        await kube_client.merge_patch(LEASES, "controller", {"spec": taken})
        clock.advance(TIMES.renew_interval)
        await until(lambda: not candidate.works)
    assert (await kube_client.get(LEASES, "controller"))["spec"]["holderIdentity"] == "thief"


async def test_the_end_of_the_work_ends_the_election(kube_client: KubeClient) -> None:
    async def fail() -> None:
        raise ValueError("broken")

    async def succeed() -> None:
        return

    election = LeaseElection(kube_client, "controller", "a", TIMES)
    with pytest.raises(ValueError, match="broken"):
        await election.run(fail)
    await election.run(succeed)
    lease = await kube_client.get(LEASES, "controller")
    assert (lease["spec"]["holderIdentity"], lease["spec"]["leaseTransitions"]) == ("", 1)


async def test_an_expired_lease_of_an_ended_process_is_taken(kube_client: KubeClient, clock: LoopClock) -> None:
    spec = {"holderIdentity": "dead", "leaseDurationSeconds": 15, "renewTime": "2999-01-01T00:00:00.000000Z"}
    await kube_client.create(
        LEASES,
        {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "controller"}, "spec": spec},
    )
    candidate = Candidate(kube_client, "a")
    async with candidate.running():
        await clock.advance_until(lambda: candidate.works, step=0.1)


def test_times_that_would_allow_two_leaders_are_rejected() -> None:
    with pytest.raises(ValueError, match="renew < deadline < duration"):
        LeaseTimes(duration=5, renew_deadline=5)
