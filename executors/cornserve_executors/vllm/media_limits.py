"""vLLM's limits of media in a prompt."""

from __future__ import annotations

from cornserve_executors.vllm.media_decoder import SAMPLINGS, video_loader
from cornserve_tasklib.engine import EngineSettings


def media_limits(config: EngineSettings) -> dict[str, int]:
    """Returns vLLM's limits of media in a prompt.

    Videos are refused if vLLM samples the frames for the model in a way that `FrameSampling` does not have. Without a
    limit, vLLM reserves memory for videos.
    """
    return {} if video_loader(config.model_id, config.revision) in SAMPLINGS else {"video": 0}
