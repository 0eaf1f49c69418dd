"""An encoder is loaded without the language model that it belongs to."""

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
from tests.images import noise, sent
from tests.integration.encoder.engine import encoding, rows_of

if TYPE_CHECKING:
    from cornserve_executors.encoder.loader import LoadedEncoder

ENCODERS = ("visual.", "vision_tower.", "multi_modal_projector.")
HUGE = 4 << 30


def loaded(model: Path) -> LoadedEncoder:
    from cornserve_executors.encoder.loader import load

    return load(EncoderTask(model_id=str(model)), "cpu")


def tensors_of(model: Path) -> dict[str, Any]:
    from safetensors.torch import load_file

    tensors: dict[str, Any] = load_file(model / "model.safetensors")
    return tensors


def belongs_to_encoder(name: str) -> bool:
    return name.startswith(ENCODERS)


def copy_with(model: Path, folder: Path, files: Mapping[str, Mapping[str, Any]]) -> Path:
    """The model with its weights spread over these files, and an index that says so."""
    from safetensors.torch import save_file

    copied = folder / "copy"
    shutil.copytree(model, copied, ignore=shutil.ignore_patterns("*.safetensors"))
    for file, tensors in files.items():
        save_file(dict(tensors), copied / file)
    weights = {name: file for file, tensors in files.items() for name in tensors}
    (copied / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weights}))
    return copied


async def test_the_language_models_files_are_not_even_opened(model: Path, tmp_path: Path) -> None:
    import torch

    tensors = tensors_of(model)
    encoder = {name: tensor for name, tensor in tensors.items() if belongs_to_encoder(name)}
    rest = {name: tensor for name, tensor in tensors.items() if name not in encoder}
    half = len(encoder) // 2
    shards = [dict(list(encoder.items())[:half]), dict(list(encoder.items())[half:])]
    copied = copy_with(model, tmp_path, {"a.safetensors": shards[0], "b.safetensors": shards[1], "c.safetensors": rest})
    (copied / "c.safetensors").unlink()

    image = sent(noise(0, 112, 84))
    async with encoding(copied) as apart, encoding(model) as whole:
        assert torch.equal(await rows_of(apart, image), await rows_of(whole, image))


def test_only_the_encoders_weights_take_memory(model: Path) -> None:
    expected = {name: tensor for name, tensor in tensors_of(model).items() if belongs_to_encoder(name)}

    module = loaded(model).family.model

    assert {name for name, _ in module.named_parameters()} == set(expected)
    assert {parameter.device.type for parameter in module.parameters()} == {"cpu"}
    assert sum(parameter.nbytes for parameter in module.parameters()) == sum(one.nbytes for one in expected.values())


def test_a_language_model_of_gigabytes_in_the_same_file_costs_nothing(tiny_qwen25vl: Path, tmp_path: Path) -> None:
    loaded(tiny_qwen25vl)
    shutil.copytree(tiny_qwen25vl, tmp_path, dirs_exist_ok=True)
    _add_huge_tensor(tmp_path / "model.safetensors", "model.layers.2.mlp.up_proj.weight")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    loaded(tmp_path)

    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10  # in KiB


def _add_huge_tensor(file: Path, name: str) -> None:
    """Appends it as a hole, which becomes gigabytes only for whoever reads it."""
    data = file.read_bytes()
    end = 8 + int.from_bytes(data[:8], "little")
    header, tensors = json.loads(data[8:end]), data[end:]
    header[name] = {"dtype": "U8", "shape": [HUGE], "data_offsets": [len(tensors), len(tensors) + HUGE]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    file.write_bytes(len(text).to_bytes(8, "little") + text + tensors)
    with file.open("ab") as end_of_file:
        end_of_file.truncate(8 + len(text) + len(tensors) + HUGE)


async def test_weights_may_be_named_as_parts_of_a_model_with_a_head(model: Path, tmp_path: Path) -> None:
    import torch

    renamed = {f"model.{name}": tensor for name, tensor in tensors_of(model).items() if belongs_to_encoder(name)}
    copied = copy_with(model, tmp_path, {"a.safetensors": renamed})

    image = sent(noise(0, 112, 84))
    async with encoding(copied) as apart, encoding(model) as whole:
        assert torch.equal(await rows_of(apart, image), await rows_of(whole, image))


def test_a_model_without_encoder_is_refused(tiny_llama: Path) -> None:
    with pytest.raises(
        ExecutorStartError, match="is a llama; encoders can be loaded of these only: internvl, qwen2_5_vl"
    ):
        loaded(tiny_llama)


def test_a_checkpoint_that_lacks_weights_is_refused(model: Path, tmp_path: Path) -> None:
    encoder = {name: tensor for name, tensor in tensors_of(model).items() if belongs_to_encoder(name)}
    gone = min(encoder)
    del encoder[gone]

    with pytest.raises(ExecutorStartError, match=f"lacks weights of its encoder: {gone}"):
        loaded(copy_with(model, tmp_path, {"a.safetensors": encoder}))


def test_a_directory_without_weights_is_refused(model: Path, tmp_path: Path) -> None:
    shutil.copytree(model, tmp_path, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.safetensors"))

    with pytest.raises(ExecutorStartError, match=r"has no weights: there is no model\.safetensors"):
        loaded(tmp_path)
