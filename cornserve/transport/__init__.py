"""The data plane: passes tensors between executors."""

from cornserve.transport.consumer.peers import AnnouncedPeers, NetworkPeers, PeerDirectory
from cornserve.transport.errors import (
    DuplicateProductionError,
    LostError,
    SlabError,
    StaleError,
    TensorTooLargeError,
    TransportError,
)
from cornserve.transport.memory.reader import SegmentReader, SegmentWriter
from cornserve.transport.memory.segment import Location, reap
from cornserve.transport.memory.step_registrations import StepRegistrations, address_of
from cornserve.transport.producer.production import Production, Slot, StreamWriter
from cornserve.transport.tensor import ProductionId, TensorId, TensorView
from cornserve.transport.transport import Transport

__all__ = [
    "AnnouncedPeers",
    "DuplicateProductionError",
    "Location",
    "LostError",
    "NetworkPeers",
    "PeerDirectory",
    "Production",
    "ProductionId",
    "SegmentReader",
    "SegmentWriter",
    "SlabError",
    "Slot",
    "StaleError",
    "StepRegistrations",
    "StreamWriter",
    "TensorId",
    "TensorTooLargeError",
    "TensorView",
    "Transport",
    "TransportError",
    "address_of",
    "reap",
]
