"""The processing and the weights of encoders, with a model whose images have tiles."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cornserve.v1 import executor_pb2 as pb
from cornserve_executors.base import ExecutorStartError
from cornserve_tasklib.encoder import EncoderTask
from tests.hub import MODEL, running_hub
from tests.images import as_image, noise
from tests.integration.encoder.client import calling
from tests.integration.encoder.engine import encode_rows, encoder_task, running_engine
from tests.integration.llm.process import ExecutorProcess, running_executor
from tests.models.tiny_families import whole_model

pytestmark = [pytest.mark.slow, pytest.mark.timeout(200)]


@pytest.fixture(scope="module")
def model() -> Path:
    return whole_model("whole", "llava_next")


async def test_a_medium_that_waited_too_long_for_memory_is_processed_again(model: Path) -> None:
    import torch

    image = as_image(noise(1, 300, 200))
    async with running_engine(encoder_task(model)) as engine:
        expected = await encode_rows(engine, image)
        with await engine.prepare(image, "request") as prepared:
            prepared.release()

            async with engine.encoded(image, prepared, "request") as rows:
                assert torch.equal(rows, expected)


async def test_keys_depend_on_the_weights_and_not_on_the_directory(model: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    image = as_image(noise(1, 60, 40))
    keys = []
    copied, changed = (shutil.copytree(model, tmp_path / name) for name in ("copied", "changed"))
    tensors = load_file(changed / "model.safetensors")
    name = next(name for name in tensors if "vision" in name and name.endswith("weight"))
    save_file(tensors | {name: tensors[name] + 1}, changed / "model.safetensors")
    for directory in (model, copied, changed):
        async with running_engine(encoder_task(directory)) as engine:
            keys.append(engine.cache_key(image))

    assert keys[0] == keys[1] != keys[2]


def test_a_modality_that_the_model_does_not_encode_is_refused(model: Path) -> None:
    from cornserve_executors.encoder.vllm_tower import VllmTower

    task = EncoderTask(model_id=str(model), modality="audio")

    with pytest.raises(ExecutorStartError, match="has no encoder of the modality audio"):
        VllmTower.load(task, "cpu")


LOAD = """
import sys
from cornserve_executors.encoder.vllm_tower import VllmTower
from cornserve_executors.vllm.settings import prepare_environment
from cornserve_tasklib.encoder import EncoderTask

prepare_environment()
print(VllmTower.load(EncoderTask(model_id=sys.argv[1]), "cpu").fingerprint("image"))
"""


def test_files_of_the_language_model_are_not_downloaded(model: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save

    shards: dict[str, dict[str, Any]] = {"encoder.safetensors": {}, "language.safetensors": {}}
    for name, tensor in load_file(model / "model.safetensors").items():
        is_language = name.startswith(("language_model", "model.language_model", "lm_head"))
        shards["language.safetensors" if is_language else "encoder.safetensors"][name] = tensor
    files = {path.name: path.read_bytes() for path in model.iterdir() if path.suffix != ".safetensors"}
    files |= {file: save(tensors, {"format": "pt"}) for file, tensors in shards.items()}
    index = {name: file for file, tensors in shards.items() for name in tensors}
    files["model.safetensors.index.json"] = json.dumps({"weight_map": index}).encode()

    fingerprints = set()
    with running_hub(files) as hub:
        for model_id in (MODEL, str(model)):
            environment = os.environ | {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "0"}
            load = [sys.executable, "-c", LOAD, model_id]
            loaded = subprocess.run(load, env=environment, capture_output=True, text=True, timeout=150, check=True)
            fingerprints.add(loaded.stdout.split()[-1])

    assert len(fingerprints) == 1
    assert hub.downloads["encoder.safetensors"] == 1
    assert hub.downloads["language.safetensors"] == 0


@pytest.fixture(scope="module")
def executor(
    tiny_internvl: Path, fork_variables: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ExecutorProcess]:
    """An encoder with memory for the embeddings of 85 images. A request may use half of it."""
    directory = tmp_path_factory.mktemp("executor")
    options = ["--shared-memory", str(directory), "--slab-mib", "1"]
    task = EncoderTask(model_id=str(tiny_internvl))
    with running_executor(task, directory, *options, environment=fork_variables) as executor:
        executor.until_ready()
        yield executor


names = count()


@settings(max_examples=10)
@given(st.lists(st.integers(1, 40), min_size=2, max_size=6))
async def test_requests_that_share_little_memory_all_end(executor: ExecutorProcess, sizes: list[int]) -> None:
    """The size of a request is the number of its images, whose embeddings are kept until its last image is encoded."""

    async def send(size: int) -> set[int]:
        name = f"request-{next(names)}"
        images = [as_image(noise(next(names), 112, 84)) for _ in range(size)]
        async with calling(name, executor.endpoint) as caller:
            caller.send_together(*images)
            ends = await caller.end_events(size)
            caller.release_all()
        return {end.code for end in ends}

    async with asyncio.timeout(60):
        codes = await asyncio.gather(*map(send, sizes))

    assert codes == [{pb.CODE_OK}] * len(sizes)
