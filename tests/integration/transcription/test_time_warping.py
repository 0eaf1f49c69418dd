"""Dynamic time warping of tokens and frames."""

from __future__ import annotations

import numpy as np
import pytest

from cornserve_executors.transcription.time_warping import Costs, first_frames
from tests.integration.transcription.attention_reference import reference_first_frames


@pytest.mark.parametrize("shape", [(1, 1), (1, 9), (9, 1), (5, 40), (40, 5), (60, 250)])
def test_the_first_frames_of_tokens_are_those_of_transformers(shape: tuple[int, int]) -> None:
    costs = np.random.default_rng(3).normal(size=shape).astype(np.float32)
    equal: Costs = np.zeros(shape, np.float32)

    assert first_frames(costs).tolist() == reference_first_frames(costs)
    assert first_frames(equal).tolist() == reference_first_frames(equal)
