"""Locks the pages of segments, so that a GPU reads and writes the data plane's memory directly."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

import torch

from cornserve.transport import StepRegistrations

_READ_ONLY: Final = 8
"""`cudaHostRegisterReadOnly`, which memory needs that the process may only read."""

FAILURE: Final = "cannot lock shared memory for the GPU: copies of tensors are slower"


def _register(address: int, nbytes: int, is_readonly: bool) -> Callable[[], object]:
    cudart = torch.cuda.cudart()
    # CUDA also reports an error to the next check in the same thread, so the call has its own thread.
    with ThreadPoolExecutor(1) as thread:
        error = thread.submit(cudart.cudaHostRegister, address, nbytes, _READ_ONLY if is_readonly else 0).result()
    torch.cuda.check_error(int(error))
    return partial(cudart.cudaHostUnregister, address)


CUDA_LOCKS = StepRegistrations(_register, FAILURE)
