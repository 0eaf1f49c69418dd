"""Selects the protocol by which a tensor is pulled: the best one that both ends have, and that works between them."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final

from cornserve.observe.limited_log import LimitedLog
from cornserve.pull_protocol import PullProtocol, rdma_devices
from cornserve.transport.pull.fabric import Fabric
from cornserve.transport.pull.fabric_puller import FabricPuller
from cornserve.transport.pull.puller import FindSource, HungPullError, Puller, PullTarget
from cornserve.transport.pull.tcp import TcpPuller
from cornserve.transport.pull.ucx import UcxFabric
from cornserve.wire.credentials import ConnectionCredentials
from cornserve.wire.listener import ConnectionFactories

FABRICS: Final[dict[PullProtocol, Callable[[], Coroutine[Any, Any, Fabric]]]] = {PullProtocol.UCX: UcxFabric.start}
"""The libraries for RDMA, the best one first."""

RETRY_SECONDS: Final = 60.0
"""Time for which a protocol that has failed is not used with the same producer."""

PULLS_PER_PRODUCER: Final = 4
"""Concurrent pulls from one producer. More would share the same network link."""

log = logging.getLogger(__name__)


class PullerSelection:
    """The pullers of this process.

    Args:
        protocol: `auto` uses a library for RDMA if it finds a network device for it, unless the connections use TLS:
            the libraries do not encrypt.
    """

    def __init__(self, protocol: PullProtocol, credentials: ConnectionCredentials) -> None:
        self._protocol = protocol
        self._credentials = credentials
        self._pullers: dict[str, Puller] = {PullProtocol.TCP: TcpPuller(credentials)}
        """The pullers by protocol, the best one first."""
        self._failed: dict[tuple[str, str], float] = {}
        """When a protocol can be used again with the producer at an endpoint."""
        self._limits: dict[str, asyncio.Semaphore] = {}
        """The limits of concurrent pulls by the endpoint of the producer."""
        self._log = LimitedLog(log)
        self.pulled_bytes: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()

    @property
    def protocols(self) -> list[str]:
        return list(self._pullers)

    async def start(self) -> None:
        """Starts the libraries that the protocol permits. Logs a warning if one that is installed does not work."""
        if self._protocol is PullProtocol.AUTO:
            names: tuple[PullProtocol, ...] = () if self._credentials.tls is not None else tuple(FABRICS)
        else:
            names = tuple(name for name in FABRICS if name == self._protocol)
        fabrics = [fabric for name in names if (fabric := await self._start_fabric(name)) is not None]
        pullers: dict[str, Puller] = {fabric.protocol: FabricPuller(fabric, self._credentials) for fabric in fabrics}
        self._pullers = {**pullers, **self._pullers}

    def serve(self, find: FindSource) -> ConnectionFactories:
        return {key: create for puller in self._pullers.values() for key, create in puller.serve(find).items()}

    async def pull(self, endpoint: str, protocols: Iterable[str], capability: bytes, into: PullTarget) -> None:
        """Fills `into` by the best protocol of both ends, or the next one if it fails but does not hang. See `Puller`.

        Args:
            protocols: those of the producer at the endpoint.
        """
        theirs = list(protocols)
        failure = f"its node sends by {', '.join(theirs)}, and this process receives by {', '.join(self.protocols)}"
        async with self._limits.setdefault(endpoint, asyncio.Semaphore(PULLS_PER_PRODUCER)):
            # Selected after the wait, during which a protocol can fail.
            for puller in self._candidates(endpoint, theirs):
                try:
                    await puller.pull(endpoint, capability, into)
                except OSError as error:
                    failure = f"cannot pull it from {endpoint}: {error}"
                    self.record_failure(endpoint, puller, error)
                    if isinstance(error, HungPullError):
                        break
                else:
                    self.pulled_bytes[puller.protocol] += into.view.nbytes
                    return
        raise OSError(failure)

    def _candidates(self, endpoint: str, protocols: Iterable[str]) -> list[Puller]:
        """Returns the pullers that the producer at an endpoint has, too, and that have not failed with it recently.

        TCP is always tried.
        """
        now = asyncio.get_running_loop().time()
        common = set(protocols)
        return [
            puller
            for name, puller in self._pullers.items()
            if name in common and (name == PullProtocol.TCP or self._failed.get((endpoint, name), 0) <= now)
        ]

    def record_failure(self, endpoint: str, puller: Puller, error: OSError) -> None:
        self.failures[puller.protocol] += 1
        if puller.protocol != PullProtocol.TCP:
            now = asyncio.get_running_loop().time()
            self._failed = {failed: retry for failed, retry in self._failed.items() if retry > now}
            self._failed[endpoint, puller.protocol] = now + RETRY_SECONDS
            self._log.warning(
                "cannot pull tensors from %s by %s, using TCP for %g s: %s",
                *(endpoint, puller.protocol, RETRY_SECONDS, str(error) or type(error).__name__),
            )

    def disconnect(self, endpoint: str) -> None:
        self._limits.pop(endpoint, None)
        for name, puller in self._pullers.items():
            self._failed.pop((endpoint, name), None)
            puller.disconnect(endpoint)

    async def close(self) -> None:
        for puller in self._pullers.values():
            await puller.close()

    async def _start_fabric(self, name: PullProtocol) -> Fabric | None:
        """Returns None if the library does not work, or `auto` does not use it on this machine."""
        is_selected, devices = self._protocol == name, rdma_devices()
        if not (is_selected or devices):
            return None
        try:
            fabric = await FABRICS[name]()
        except ModuleNotFoundError as error:
            if is_selected:
                _warn(name, f"{error}: install cornserve[rdma]")
            return None
        except (ImportError, OSError) as error:
            _warn(name, str(error))
            return None
        if is_selected and not fabric.has_rdma:
            log.warning("%s uses TCP: each process that reaches its port can write the memory of this one", name)
        if is_selected or fabric.has_rdma:
            return fabric
        await fabric.close()
        _warn(name, f"it does not support the network devices {', '.join(devices)}")
        return None


def _warn(name: PullProtocol, problem: str) -> None:
    log.warning("tensors are pulled by TCP, because %s does not work: %s", name, problem)
