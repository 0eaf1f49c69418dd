"""An encoder is loaded without its language model."""

from __future__ import annotations

import json
import resource
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cornserve_executors.base import ExecutorStartError
from cornserve_tasklib.encoder import EncoderTask
from tests.images import as_image, noise
from tests.integration.encoder.engine import encode_rows, encoder_task, running_engine
from tests.integration.engine_pool import EnginePool

if TYPE_CHECKING:
    from cornserve_executors.encoder.engine import EncoderEngine
    from cornserve_executors.encoder.vllm_tower import VllmTower

ENCODERS = ("visual.", "vision_tower.", "multi_modal_projector.")
HUGE = 4 << 30


def load(model: Path) -> VllmTower:
    from cornserve_executors.encoder.vllm_tower import VllmTower

    return VllmTower.load(EncoderTask(model_id=str(model)), "cpu")


def tensors_of(model: Path) -> dict[str, Any]:
    from safetensors.torch import load_file

    tensors: dict[str, Any] = load_file(model / "model.safetensors")
    return tensors


def is_encoder_tensor(name: str) -> bool:
    return name.startswith(ENCODERS)


def copy_with_weights(model: Path, directory: Path, files: Mapping[str, Mapping[str, Any]]) -> Path:
    """Copies the model, with its weights split into the given files and an index of them."""
    from safetensors.torch import save_file

    copied = directory / "copy"
    shutil.copytree(model, copied, ignore=shutil.ignore_patterns("*.safetensors"))
    for file, tensors in files.items():
        save_file(dict(tensors), copied / file)
    weights = {name: file for file, tensors in files.items() for name in tensors}
    (copied / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weights}))
    return copied


async def test_files_of_the_language_model_are_not_opened(
    engines: EnginePool[EncoderEngine], model: Path, tmp_path: Path
) -> None:
    import torch

    tensors = tensors_of(model)
    encoder = {name: tensor for name, tensor in tensors.items() if is_encoder_tensor(name)}
    rest = {name: tensor for name, tensor in tensors.items() if name not in encoder}
    half = len(encoder) // 2
    shards = [dict(list(encoder.items())[:half]), dict(list(encoder.items())[half:])]
    copied = copy_with_weights(
        model, tmp_path, {"a.safetensors": shards[0], "b.safetensors": shards[1], "c.safetensors": rest}
    )
    (copied / "c.safetensors").unlink()

    image = as_image(noise(0, 112, 84))
    original = await engines.engine(encoder_task(model))
    async with running_engine(encoder_task(copied)) as copy:
        assert torch.equal(await encode_rows(copy, image), await encode_rows(original, image))


def test_a_huge_language_model_in_the_same_file_takes_no_memory(model: Path, tmp_path: Path) -> None:
    load(model)
    shutil.copytree(model, tmp_path, dirs_exist_ok=True)
    _add_huge_tensor(tmp_path / "model.safetensors", "language_model.model.layers.2.mlp.up_proj.weight")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    load(tmp_path)

    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10  # in KiB


def _add_huge_tensor(file: Path, name: str) -> None:
    """Appends the tensor as a sparse region, which takes memory only when it is read."""
    data = file.read_bytes()
    end = 8 + int.from_bytes(data[:8], "little")
    header, tensors = json.loads(data[8:end]), data[end:]
    header[name] = {"dtype": "U8", "shape": [HUGE], "data_offsets": [len(tensors), len(tensors) + HUGE]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    file.write_bytes(len(text).to_bytes(8, "little") + text + tensors)
    with file.open("ab") as end_of_file:
        end_of_file.truncate(8 + len(text) + len(tensors) + HUGE)


async def test_weights_may_have_the_prefix_of_a_model_with_a_head(
    engines: EnginePool[EncoderEngine], model: Path, tmp_path: Path
) -> None:
    import torch

    renamed = {f"model.{name}": tensor for name, tensor in tensors_of(model).items() if is_encoder_tensor(name)}
    copied = copy_with_weights(model, tmp_path, {"a.safetensors": renamed})

    image = as_image(noise(0, 112, 84))
    original = await engines.engine(encoder_task(model))
    async with running_engine(encoder_task(copied)) as copy:
        assert torch.equal(await encode_rows(copy, image), await encode_rows(original, image))


def test_a_model_without_an_encoder_is_rejected(tiny_llama: Path) -> None:
    with pytest.raises(ExecutorStartError, match=r"tiny_llama.* is a text model, which has no encoders"):
        load(tiny_llama)


def test_a_checkpoint_with_missing_weights_is_rejected(model: Path, tmp_path: Path) -> None:
    encoder = {name: tensor for name, tensor in tensors_of(model).items() if is_encoder_tensor(name)}
    missing = min(name for name in encoder if ".linear_" in name or ".mlp." in name)
    del encoder[missing]

    with pytest.raises(ExecutorStartError, match=f"lacks weights of the encoder: .*{missing}"):
        load(copy_with_weights(model, tmp_path, {"a.safetensors": encoder}))


def test_a_directory_without_weights_is_rejected(model: Path, tmp_path: Path) -> None:
    shutil.copytree(model, tmp_path, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.safetensors"))

    with pytest.raises(ExecutorStartError, match="Cannot find any model weights"):
        load(tmp_path)
