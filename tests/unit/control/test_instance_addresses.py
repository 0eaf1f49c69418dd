from __future__ import annotations

import socket
from pathlib import Path

import pytest

from cornserve.control.local_instance.addresses import InstanceAddresses
from cornserve.control.local_instance.options import InstanceOptions
from cornserve.home import Home


def test_the_own_port_of_a_gateway_is_reserved_until_the_instance_ends(tmp_path: Path) -> None:
    with InstanceAddresses.chosen(InstanceOptions(home=Home(tmp_path), port=0, gateways=2)) as addresses:
        assert len({*addresses.gateways, addresses.controller_metrics, addresses.url.removeprefix("http://")}) == 4
        gateways = [("127.0.0.1", int(gateway.rpartition(":")[2])) for gateway in addresses.gateways]
        for own in gateways:
            with pytest.raises(OSError, match="Address already in use"):
                socket.create_server(own)
            socket.create_server(own, reuse_port=True).close()
    for own in gateways:
        socket.create_server(own).close()
