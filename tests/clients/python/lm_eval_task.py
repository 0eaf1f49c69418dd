"""lm-eval: log likelihoods of a multiple-choice task, and generated texts, from a task of two questions."""

import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from settings import BASE_URL, MODEL

TASK = """\
task: {name}
dataset_path: json
dataset_kwargs:
  data_files: {data}
test_split: train
output_type: {kind}
doc_to_text: "{{{{question}}}}"
doc_to_target: "{{{{answer}}}}"
"""
CHOICES = 'doc_to_choice: ["red", "seven"]\nmetric_list:\n  - metric: acc\n'
GENERATION = 'generation_kwargs:\n  until: ["."]\n  max_gen_toks: 8\nmetric_list:\n  - metric: exact_match\n'

with TemporaryDirectory() as directory:
    data = Path(directory) / "data.jsonl"
    rows = [{"question": "A color:", "answer": "red"}, {"question": "A number:", "answer": "seven"}]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    for kind, rest in (("multiple_choice", CHOICES), ("generate_until", GENERATION)):
        text = TASK.format(name=kind, data=data, kind=kind) + rest
        (Path(directory) / f"{kind}.yaml").write_text(text)
        arguments = f"model={MODEL},base_url={BASE_URL}/completions,tokenizer={os.environ['CORNSERVE_TOKENIZER']}"
        command = [sys.executable, "-m", "lm_eval", "run", "--model", "local-completions", "--model_args", arguments]
        subprocess.run([*command, "--tasks", kind, "--include_path", directory], check=True)
