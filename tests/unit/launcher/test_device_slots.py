"""How the machine is divided among replicas."""

from __future__ import annotations

from pathlib import Path

import pytest

from cornserve.control.launcher.local import DeviceSlots

NVIDIA_SMI = """#!/bin/sh
echo 'GPU 0: NVIDIA H200 (UUID: GPU-a)'
echo '  MIG 1g.18gb Device 0: (UUID: MIG-b)'
echo 'GPU 1: NVIDIA H200 (UUID: GPU-c)'
echo 'GPU 2: NVIDIA H200 (UUID: GPU-d)'
"""


@pytest.fixture
def three_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text(NVIDIA_SMI)
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def visible(slots: DeviceSlots, count: int) -> str:
    taken = slots.allocate(count)
    assert taken is not None
    return slots.environment(taken)["CUDA_VISIBLE_DEVICES"]


def test_each_replica_sees_its_own_gpus(three_gpus: None) -> None:
    slots = DeviceSlots.detect()
    assert visible(slots, 2) == "0,1"
    assert slots.allocate(2) is None
    assert slots.describe_need(2) == "needs 2 GPUs, 1 of 3 free"
    assert visible(slots, 1) == "2"
    assert visible(slots, 0) == ""


@pytest.mark.parametrize(
    ("chosen", "used"),
    [("1", "1"), ("2,0", "2,0"), ("GPU-c,GPU-d", "GPU-c,GPU-d"), ("1,-1,0", "1"), ("0,7,1", "0")],
)
def test_only_gpus_that_we_may_see_are_used(
    three_gpus: None, monkeypatch: pytest.MonkeyPatch, chosen: str, used: str
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", chosen)
    assert visible(DeviceSlots.detect(), len(used.split(","))) == used


def test_fewer_gpus_are_used_if_asked_for(three_gpus: None) -> None:
    assert DeviceSlots.detect(gpus=2).describe_need(3) == "needs 3 GPUs, 2 of 2 free"


@pytest.mark.parametrize("hidden", ["", "-1"])
def test_without_visible_gpus_there_are_cpu_slots(
    three_gpus: None, monkeypatch: pytest.MonkeyPatch, hidden: str
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
    assert DeviceSlots.detect(cpu_slots=2).describe_need(1) == "needs 1 CPU slot, 2 of 2 free"


def test_no_gpus_can_be_asked_for_and_no_replica_sees_one(three_gpus: None) -> None:
    slots = DeviceSlots.detect(gpus=0, cpu_slots=2)
    assert visible(slots, 2) == ""
    assert not slots.could_fit(3)


def test_slots_are_free_again_when_they_are_no_longer_held() -> None:
    slots = DeviceSlots.cpu(1)
    taken = slots.allocate(1)
    assert taken is not None
    with slots.release_after(taken):
        assert slots.allocate(1) is None
    assert slots.allocate(1) == taken


def test_slots_of_found_replicas_are_taken() -> None:
    slots = DeviceSlots.cpu(2)
    slots.mark_allocated(["0", "of-a-machine-that-was-larger"])
    assert slots.allocate(2) is None
    assert slots.allocate(1) == ("1",)
