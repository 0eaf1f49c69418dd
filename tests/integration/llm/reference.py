"""Calls vLLM directly. The input file has conversations and sampling parameters, the output file the token ids.

python -m tests.integration.llm.reference INPUT OUTPUT
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

from vllm import LLM, SamplingParams


def main(source: Path, target: Path) -> None:
    job = json.loads(source.read_text())
    llm = LLM(
        job["model"],
        dtype="float32",
        enforce_eager=True,
        max_model_len=job["max_model_len"],
        kv_cache_memory_bytes=job["kv_cache_memory_bytes"],
        distributed_executor_backend="uni",
    )
    sampling = [sampling_params(**fields) for fields in job["sampling"]]
    outputs = llm.chat(job["conversations"], sampling, use_tqdm=False)
    target.write_text(json.dumps([[list(choice.token_ids) for choice in output.outputs] for output in outputs]))


def sampling_params(logit_bias: dict[str, float] | None = None, **fields: Any) -> SamplingParams:
    """Converts the keys of `logit_bias` to numbers, which JSON does not allow as keys."""
    biases = None if logit_bias is None else {int(token): bias for token, bias in logit_bias.items()}
    return SamplingParams(logit_bias=biases, **fields)


if __name__ == "__main__":
    os.environ |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_NO_USAGE_STATS": "1", "OMP_NUM_THREADS": "1"}
    main(Path(sys.argv[1]), Path(sys.argv[2]))
