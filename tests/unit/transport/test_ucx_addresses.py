"""Addresses of UCX that another process sends. Wrong ones are refused: UCX would end this process."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from cornserve.transport.pull import ucx_address
from tests.chaos import form
from tests.chaos.report import FaultRecorder, FaultResult

UUID = bytes(8)
TRANSPORT = b"\x12\x34" + bytes.fromhex("bd378635 0000803f bd378635 00000000") + b"\x82\x11\x22"
"""The last transport of a device, with an address of two bytes."""
DEVICE = b"\x01\x06\x00\x02\x7f\x00\x00\x01" + TRANSPORT
END = b"\x85\x80"
"""A device without transports, which is the last one."""
ADDRESS = b"\x20" + UUID + DEVICE + END


def test_the_transports_of_an_address_are_found() -> None:
    assert ucx_address.parse(ADDRESS) == {ucx_address.UcxTransport(b"\x12\x34", True, True)}


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        (b"", "ends too early"),
        (bytes(200), "its header is 0x00"),
        (b"\x25" + ADDRESS[1:], "its header is 0x25"),
        (ADDRESS[:-1], "ends too early"),
        (ADDRESS + b"\0", "1 bytes follow its end"),
        (b"\x20" + UUID + END, "0 transports"),
        (b"\x20" + UUID + b"\xff", "ends too early"),
        (b"\x20" + UUID + b"\x01\x46\x00\x00\x02\x7f\x00\x00\x01" + TRANSPORT + END, "no path"),
        (b"\x20" + UUID + b"\x01\x26\x40\x00\x02\x7f\x00\x00\x01" + TRANSPORT + END, "index that is too large"),
        (b"\x20" + UUID + b"\x40" + DEVICE[1:] + END, "index that is too large"),
        (b"\x20" + UUID + DEVICE * 65 + END, "more than 64 devices"),
        (ADDRESS.replace(bytes.fromhex("0000803f"), bytes.fromhex("0000c07f")), "bandwidth nan"),
        (ADDRESS.replace(b"\x82\x11", b"\xc2\x11"), "address of an endpoint"),
    ],
)
def test_an_address_that_ucx_would_not_read_as_it_is_is_refused(address: bytes, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        ucx_address.parse(address)


@pytest.mark.parametrize("without", [(b"\x06\x00\x02\x7f\x00\x00\x01", b"\0"), (b"\x82\x11\x22", b"\x80")])
def test_a_transport_that_this_process_has_needs_its_address(without: tuple[bytes, bytes]) -> None:
    local = ucx_address.parse(ADDRESS)
    with pytest.raises(ValueError, match="a transport has no address"):
        ucx_address.check(ADDRESS.replace(*without), local)

    ucx_address.check(ADDRESS, local)
    of_others = ADDRESS.replace(b"\x12\x34", b"\x56\x78")  # a transport that this process does not have
    ucx_address.check(of_others.replace(*without), local)


CHANGED = form.by_form(short=150, full=5000)


@pytest.mark.slow
@pytest.mark.chaos
def test_a_process_survives_changed_addresses(record_fault: FaultRecorder) -> None:
    pytest.importorskip("ucxx", exc_type=ImportError)
    command = (sys.executable, "-m", "tests.unit.transport.changed_ucx_addresses", str(CHANGED), str(form.seed()))

    ended = subprocess.run(
        command, env=os.environ | {"UCX_NET_DEVICES": "lo"}, capture_output=True, text=True, timeout=600, check=False
    )

    assert ended.returncode == 0, ended.stderr[-5000:]
    refused, connected = map(int, ended.stdout.split())
    assert refused > 0
    assert connected > 0
    outcome = f"{refused:,} refused, UCX connects to the others"
    record_fault(FaultResult("address of UCX with changed bytes", CHANGED, CHANGED, outcome, leaks=0))
