"""A vLLM worker for CPUs that supports seeds with chunked prefill."""

from __future__ import annotations

from typing import Any

import numpy as np
from vllm.v1.worker.cpu_worker import CPUWorker


class SeededCPUWorker(CPUWorker):  # type: ignore[misc]
    """vLLM's CPU worker, extended to sample with a seed when a prompt is computed in several steps.

    vLLM samples a token in each of these steps, discards all but the last, and rewinds the request's generator
    (`_bookkeeping_sync`). A CPU generator cannot be rewound: the engine would crash.
    """

    def sample_tokens(self, grammar_output: Any) -> Any:
        """Samples without the generators of requests whose token will be discarded, so that they do not advance."""
        runner = self.model_runner
        generators = runner.input_batch.generators
        discarded = np.flatnonzero(runner.discard_request_mask.np[: runner.input_batch.num_reqs])
        withheld = {index: generators.pop(index) for index in discarded.tolist() if index in generators}
        output = super().sample_tokens(grammar_output)
        generators.update(withheld)
        return output
