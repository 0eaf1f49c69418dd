"""Dynamic time warping of tokens and frames of audio."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Costs: TypeAlias = npt.NDArray[np.float32]
"""A matrix of the shape [tokens, frames]."""

_BOTH, _TOKEN, _FRAME = range(3)
"""The steps of a path: to the next token and frame, or to the next one of them."""


def first_frames(costs: Costs) -> npt.NDArray[np.int64]:
    """Returns the first frame of each token on the path with the lowest sum of costs, by dynamic time warping.

    The path goes from the first token and frame to the last ones, and skips no token and no frame.
    """
    tokens, frames = costs.shape
    sums = np.full((tokens + 1, frames + 1), np.inf, np.float32)
    sums[0, 0] = 0
    steps = np.zeros(sums.shape, np.int8)
    for diagonal in range(2, tokens + frames + 1):  # The cells of a diagonal do not depend on each other.
        token = np.arange(max(1, diagonal - frames), min(tokens, diagonal - 1) + 1)
        frame: npt.NDArray[np.int64] = diagonal - token
        both, next_token, next_frame = sums[token - 1, frame - 1], sums[token - 1, frame], sums[token, frame - 1]
        is_both = (both < next_token) & (both < next_frame)
        is_token = ~is_both & (next_token < both) & (next_token < next_frame)
        cost = costs[token - 1, frame - 1].astype(np.float64)
        sums[token, frame] = cost + np.select([is_both, is_token], [both, next_token], next_frame)
        steps[token, frame] = np.select([is_both, is_token], [_BOTH, _TOKEN], _FRAME)
    first = np.zeros(tokens, np.int64)
    last_token, last_frame = tokens, frames
    while last_token:
        first[last_token - 1] = last_frame - 1
        step = steps[last_token, last_frame]
        last_token -= int(step != _FRAME)
        last_frame -= int(step != _TOKEN)
    return first
