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
from cornserve.transport.memory.segment import Location, SegmentMemory, memory_of, reap
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
    "SegmentMemory",
    "SegmentReader",
    "SegmentWriter",
    "SlabError",
    "Slot",
    "StaleError",
    "StreamWriter",
    "TensorId",
    "TensorTooLargeError",
    "TensorView",
    "Transport",
    "TransportError",
    "memory_of",
    "reap",
]
