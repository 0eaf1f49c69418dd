"""GuideLLM: a benchmark of two requests with synthetic prompts."""

import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from settings import MODEL, SERVER

REQUESTS = 2
OPTIONS = {
    "backend": f"kind=openai_http,target={SERVER},model={MODEL}",
    "profile": "kind=synchronous",
    "constraint": f"kind=max_requests,count={REQUESTS}",
    "data": "kind=synthetic_text,prompt_tokens=16,output_tokens=8",
    "tokenizer": f"kind=huggingface_auto,model={os.environ['CORNSERVE_TOKENIZER']}",
}

with TemporaryDirectory() as directory:
    command = [Path(sys.executable).with_name("guidellm"), "run", *(f"--{name}={OPTIONS[name]}" for name in OPTIONS)]
    subprocess.run([*command, "--disable-progress"], check=True, cwd=directory)
    report = json.loads((Path(directory) / "benchmarks.json").read_text())
    requests = report["benchmarks"][0]["requests"]
    assert len(requests["successful"]) == REQUESTS, requests
