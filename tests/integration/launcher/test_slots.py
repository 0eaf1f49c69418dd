"""Slots with types and cores of the local launcher."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cornserve.app.record import FailureReason, ReplicaState
from cornserve.control.launcher.base import ExecutorGroup, GroupRefusedError, PodSettings
from cornserve.control.launcher.local.slot_types import SlotType, bind_slots
from cornserve.home import Home
from tests.integration.launcher.conformance import ECHO, OTHER, none, observed, ready
from tests.integration.launcher.local_site import LocalSite

TYPES = (SlotType("small", 1), SlotType("big", 1))
SMALL, BIG = PodSettings(gpu_type="small"), PodSettings(gpu_type="big")
ONE_SLOT = ECHO.model_copy(update={"gpus": 1})
ALSO_ONE_SLOT = OTHER.model_copy(update={"gpus": 1})


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[LocalSite]:
    site = LocalSite(Home(tmp_path / "home"), slot_types=TYPES)
    yield site
    await site.clear()


async def test_a_replica_runs_on_the_cores_of_its_slots(site: LocalSite) -> None:
    async with site.open() as launcher:
        await launcher.apply(ExecutorGroup(ONE_SLOT, 1, BIG))
        [replica] = await observed(launcher, ready(1))
        process = site.process(replica.id)
        [big] = [slot for slot in bind_slots(TYPES) if slot.type == "big"]
        assert process.slots == (big.id,)
        assert os.sched_getaffinity(process.process_group.pid) == set(big.cores)


async def test_a_replica_waits_for_a_slot_of_its_type(site: LocalSite) -> None:
    async with site.open() as launcher:
        await launcher.apply(ExecutorGroup(ONE_SLOT, 1, BIG))
        await observed(launcher, ready(1))
        await launcher.apply(ExecutorGroup(ALSO_ONE_SLOT, 1, BIG))
        [_, waiting] = await observed(launcher, lambda replicas: replicas[-1].message != "")
        assert waiting.message == "needs 1 CPU slot of the type big, 0 of 1 free"
        assert waiting.reason == "InsufficientCapacity"
        await launcher.apply(ExecutorGroup(ONE_SLOT, 1, SMALL))  # The other type is free.
        await observed(launcher, lambda found: [r.state for r in found].count(ReplicaState.READY) == 2)


@pytest.mark.slow
async def test_a_replica_is_adopted_with_its_group_and_slots(site: LocalSite) -> None:
    group = ExecutorGroup(ONE_SLOT, 1, BIG)
    async with site.open() as launcher:
        await launcher.apply(group)
        [before] = await observed(launcher, ready(1))
    async with site.open() as launcher:
        await launcher.apply(group)
        await launcher.prune({group.key})
        assert await observed(launcher, ready(1)) == [before]
        await launcher.prune(set())
        await observed(launcher, none)


async def test_an_unknown_type_is_refused(site: LocalSite) -> None:
    async with site.open() as launcher:
        with pytest.raises(GroupRefusedError) as refusal:
            await launcher.apply(ExecutorGroup(ONE_SLOT, 1, PodSettings(gpu_type="h100")))
        assert refusal.value.reason is FailureReason.UNKNOWN_GPU_TYPE
        assert "echo needs 1 slot of the type h100" in str(refusal.value)
        assert "its types are small, big" in str(refusal.value)
