"""The data plane: tensors go from the executor that makes them to the one that needs them."""

from cornserve.transport.errors import LostError, SlabError, StaleError, TooLargeError, TransportError
from cornserve.transport.production import Production, Slot, Writer
from cornserve.transport.reader import Reader
from cornserve.transport.segment import Location, reap
from cornserve.transport.tensor_id import TensorId
from cornserve.transport.tensor_view import TensorView
from cornserve.transport.transport import Transport

__all__ = [
    "Location",
    "LostError",
    "Production",
    "Reader",
    "SlabError",
    "Slot",
    "StaleError",
    "TensorId",
    "TensorView",
    "TooLargeError",
    "Transport",
    "TransportError",
    "Writer",
    "reap",
]
