"""Racks of GPUs, whose replicas share a link to the other racks."""

from __future__ import annotations

from dataclasses import dataclass

from cornserve_planner.errors import InvalidInputError, require_non_negative, require_positive


@dataclass(frozen=True, slots=True)
class RackTopology:
    """
    Args:
        gpus: GPUs of a rack.
        bandwidth: bytes/s of the link of a rack, in each direction.
        latency: seconds that a transfer between racks takes longer.
    """

    gpus: int
    bandwidth: float
    latency: float

    def __post_init__(self) -> None:
        require_positive("--racks", self.gpus)
        require_positive("--racks", self.bandwidth)
        require_non_negative("--racks", self.latency)


class Rack:
    """A rack: its free GPUs, and the times until which its link sends and receives."""

    __slots__ = ("free", "receives_until", "sends_until")

    def __init__(self, gpus: int) -> None:
        self.free = gpus
        self.sends_until = self.receives_until = 0.0


class Racks:
    """Places replicas: each in the rack with the fewest free GPUs that suffice.

    The replicas of a cell, which start together, are then close together.
    """

    def __init__(self, topology: RackTopology) -> None:
        self._topology = topology
        self._by_free: dict[int, dict[Rack, None]] = {}
        """The racks that are not full, by the number of their free GPUs."""

    def place(self, option: str, gpus: int) -> RackPlace:
        """Returns the place of a new replica. Raises `InvalidInputError` for replicas that are larger than a rack."""
        if gpus > self._topology.gpus:
            raise InvalidInputError("--racks", f"have {self._topology.gpus} GPUs, but a replica of {option} has {gpus}")
        least = min((free for free in self._by_free if free >= gpus), default=None)
        rack = Rack(self._topology.gpus) if least is None else next(iter(self._by_free[least]))
        self.set_free(rack, rack.free - gpus)
        return RackPlace(self, rack, gpus)

    def set_free(self, rack: Rack, free: int) -> None:
        """Sets the free GPUs of a rack."""
        known = self._by_free.get(rack.free, {})
        known.pop(rack, None)
        if not known:
            self._by_free.pop(rack.free, None)
        rack.free = free
        if free:
            self._by_free.setdefault(free, {})[rack] = None


class RackPlace:
    """The GPUs of a replica in a rack."""

    __slots__ = ("_gpus", "_racks", "rack")

    def __init__(self, racks: Racks, rack: Rack, gpus: int) -> None:
        self._racks = racks
        self.rack = rack
        self._gpus = gpus

    def leave(self) -> None:
        """Frees the GPUs. The rack remains that of transfers which still begin."""
        if self._gpus:
            self._racks.set_free(self.rack, self.rack.free + self._gpus)
            self._gpus = 0
