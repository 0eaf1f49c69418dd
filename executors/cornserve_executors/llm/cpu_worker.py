"""Seeds on a CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
from vllm.v1.worker.cpu_worker import CPUWorker


class SeededCPUWorker(CPUWorker):  # type: ignore[misc]
    """vLLM's worker, which can draw by a seed also where a prompt is computed in several steps.

    vLLM draws a token in each of these steps, drops all but the last, and turns the request's generator back by as many
    draws (`_bookkeeping_sync`). A generator of a CPU cannot be turned back: the engine would die of the attempt.
    """

    def sample_tokens(self, grammar_output: Any) -> Any:
        """Whose token will be dropped draws without their generator: it is where it was once the prompt is computed."""
        runner = self.model_runner
        generators = runner.input_batch.generators
        dropped = np.flatnonzero(runner.discard_request_mask.np[: runner.input_batch.num_reqs])
        kept_back = {index: generators.pop(index) for index in dropped.tolist() if index in generators}
        output = super().sample_tokens(grammar_output)
        generators.update(kept_back)
        return output
