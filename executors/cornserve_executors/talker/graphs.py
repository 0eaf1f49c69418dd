"""Runs functions of tensors as CUDA graphs, each of which launches all its kernels at once."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import torch

Tensors = tuple[torch.Tensor, ...]
TensorFunction = Callable[..., Tensors]

logger = logging.getLogger(__name__)


class GraphedFunction:
    """Runs a function of tensors. On a GPU, it is captured once for each combination of shapes and dtypes, and then
    replayed.

    The function must read no other changing values than its inputs and the contents of tensors that it keeps, must
    not wait for the GPU, and must have the same effect if it runs twice. If it cannot be captured, it runs as it is.
    On a CPU, and with `enforce_eager`, it runs with the same fixed inputs as a graph.
    """

    def __init__(self, function: TensorFunction, *, enforce_eager: bool = False) -> None:
        self.function = function
        self.captures = torch.cuda.is_available() and not enforce_eager
        """Whether it captures CUDA graphs."""
        self._graphs: dict[tuple[tuple[torch.Size, torch.dtype], ...], _Graph] = {}
        self._pool = torch.cuda.graph_pool_handle() if self.captures else None
        """The memory of intermediate results, which all graphs share, because one runs at a time."""
        self._stream = torch.cuda.Stream() if self.captures else None
        """The stream of all captures, for which libraries allocate their memory once."""

    @property
    def captured(self) -> int:
        """The number of captured graphs."""
        return sum(graph.is_captured for graph in self._graphs.values())

    def __call__(self, *inputs: torch.Tensor) -> Tensors:
        """Returns copies of the results of the function."""
        kinds = tuple((tensor.shape, tensor.dtype) for tensor in inputs)
        graph = self._graphs.get(kinds)
        if graph is None:
            graph = self._graphs[kinds] = _Graph(self.function, inputs)
            if self.captures and inputs[0].is_cuda:
                graph.capture(self.function, self._pool, self._stream)
        return graph.run(inputs)


class _Graph:
    """A function whose inputs have fixed shapes and dtypes."""

    def __init__(self, function: TensorFunction, inputs: Sequence[torch.Tensor]) -> None:
        self._inputs = [tensor.clone() for tensor in inputs]
        self._replay: Callable[[], Tensors] = lambda: function(*self._inputs)
        self.is_captured = False

    def run(self, inputs: Sequence[torch.Tensor]) -> Tensors:
        for fixed, tensor in zip(self._inputs, inputs, strict=True):
            fixed.copy_(tensor)
        return tuple(tensor.clone() for tensor in self._replay())

    def capture(self, function: TensorFunction, pool: Any, stream: Any) -> None:
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):  # Kernels and libraries allocate their memory in the first run.
            function(*self._inputs)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, pool, stream, capture_error_mode="thread_local"):
                outputs = function(*self._inputs)
        except torch.cuda.OutOfMemoryError:
            raise
        except RuntimeError as error:
            logger.warning("cannot capture a CUDA graph, and launches each kernel separately: %s", error)
            return

        def replay() -> Tensors:
            graph.replay()
            return outputs

        self._replay = replay
        self.is_captured = True
