"""vLLM called directly: conversations in (JSON), token ids out.

python tests/integration/llm/reference.py INPUT OUTPUT
"""

import json
import os
import sys
from pathlib import Path

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
    sampling = SamplingParams(temperature=0, max_tokens=job["max_tokens"])
    outputs = llm.chat(job["conversations"], sampling, use_tqdm=False)
    target.write_text(json.dumps([output.outputs[0].token_ids for output in outputs]))


if __name__ == "__main__":
    os.environ |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_NO_USAGE_STATS": "1", "OMP_NUM_THREADS": "1"}
    main(Path(sys.argv[1]), Path(sys.argv[2]))
