"""Tests of the allocation of GPUs and CPU slots."""

from __future__ import annotations

from pathlib import Path

import pytest

from cornserve.control.launcher.local.device_slots import DeviceSlots
from cornserve.control.launcher.local.slot_types import SlotType

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
    allocated = slots.allocate(count)
    assert allocated is not None
    return slots.environment(allocated)["CUDA_VISIBLE_DEVICES"]


def test_each_replica_sees_its_own_gpus(three_gpus: None) -> None:
    slots = DeviceSlots.detect()
    assert visible(slots, 2) == "0,1"
    assert slots.allocate(2) is None
    assert slots.describe_need(2) == "needs 2 GPUs, 1 of 3 free"
    assert visible(slots, 1) == "2"
    assert visible(slots, 0) == ""


def test_a_replica_numbers_gpus_as_nvidia_smi_does(three_gpus: None) -> None:
    assert DeviceSlots.detect().environment(["1"])["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"


@pytest.mark.parametrize(
    ("chosen", "used"),
    [("1", "1"), ("2,0", "2,0"), ("GPU-c,GPU-d", "GPU-c,GPU-d"), ("1,-1,0", "1"), ("0,7,1", "0")],
)
def test_only_visible_gpus_are_used(three_gpus: None, monkeypatch: pytest.MonkeyPatch, chosen: str, used: str) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", chosen)
    assert visible(DeviceSlots.detect(), len(used.split(","))) == used


def test_the_number_of_gpus_can_be_limited(three_gpus: None) -> None:
    assert DeviceSlots.detect(gpus=2).describe_need(3) == "needs 3 GPUs, 2 of 2 free"


@pytest.mark.parametrize("hidden", ["", "-1"])
def test_cpu_slots_replace_gpus_if_none_is_visible(
    three_gpus: None, monkeypatch: pytest.MonkeyPatch, hidden: str
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
    assert DeviceSlots.detect(cpu_slots=2).describe_need(1) == "needs 1 CPU slot, 2 of 2 free"


def test_zero_gpus_selects_cpu_slots_and_hides_the_gpus(three_gpus: None) -> None:
    slots = DeviceSlots.detect(gpus=0, cpu_slots=2)
    assert visible(slots, 2) == ""
    assert not slots.could_fit(3)


def test_slots_are_free_after_their_release() -> None:
    slots = DeviceSlots.cpu(1)
    allocated = slots.allocate(1)
    assert allocated is not None
    with slots.release_after(allocated):
        assert slots.allocate(1) is None
    assert slots.allocate(1) == allocated


def test_slots_of_adopted_replicas_are_not_allocated_again() -> None:
    slots = DeviceSlots.cpu(2)
    slots.mark_allocated(["0", "slot-of-a-larger-machine"])
    assert slots.allocate(2) is None
    assert slots.allocate(1) == ("1",)


def test_slots_of_a_type_are_allocated_apart_from_others() -> None:
    slots = DeviceSlots.detect(slot_types=[SlotType("small", 2), SlotType("big", 1, price=0.5)])
    assert slots.types == ["small", "big"]
    assert slots.allocate(1, "big") == ("big-0",)
    assert slots.allocate(1, "big") is None
    assert slots.describe_need(1, "big") == "needs 1 CPU slot of the type big, 0 of 1 free"
    assert slots.could_fit(2, "small")
    assert not slots.could_fit(2, "big")
    assert slots.allocate(2) == ("small-0", "small-1")
