"""The weights of the parts that speak."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cornserve_tasklib.talker import TalkerTask

pytestmark = pytest.mark.timeout(300)


def load_talker(model: Path, dtype: Any) -> Any:
    from transformers import AutoConfig
    from transformers.models.qwen3_omni_moe.modeling_qwen3_omni_moe import Qwen3OmniMoeTalkerForConditionalGeneration

    from cornserve_executors.talker.checkpoint import SpeechCheckpoint

    config = AutoConfig.from_pretrained(model).talker_config
    talker = Qwen3OmniMoeTalkerForConditionalGeneration._from_config(config)
    return SpeechCheckpoint(TalkerTask(model_id=str(model))).fill(talker, "talker.", "cpu", dtype)


def test_positions_of_a_talker_in_bfloat16_are_as_precise_as_in_float32(tiny_qwen3omni_talker: Path) -> None:
    import torch

    precise, rounded = (load_talker(tiny_qwen3omni_talker, dtype) for dtype in (torch.float32, torch.bfloat16))

    assert rounded.codec_head.weight.dtype == torch.bfloat16
    assert rounded.model.rotary_emb.inv_freq.equal(precise.model.rotary_emb.inv_freq)
