"""Lists the architectures, arguments and parsers of the installed vLLM. The control plane does not have vLLM.

`python -m scripts.vllm_architectures` writes the lists; `--check` compares them. It imports all models of vLLM.
"""

from __future__ import annotations

import argparse
import inspect
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import fields
from pathlib import Path
from textwrap import fill
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

FILE = Path(__file__).parent.parent / "tasklib/cornserve_tasklib/vllm_architectures.py"

UNLOADABLE = ("KananaVForConditionalGeneration",)
"""Architectures that chat about media, whose code needs packages that are not installed."""


def models() -> Iterator[tuple[str, Any]]:
    """Yields the architectures and their classes, except for drafts of other models.

    A class is `None` if its code needs missing packages.
    """
    from vllm.model_executor.models import ModelRegistry
    from vllm.model_executor.models.registry import _SPECULATIVE_DECODING_MODELS, _TRANSFORMERS_BACKEND_MODELS

    for architecture, registered in ModelRegistry.models.items():
        if architecture in _SPECULATIVE_DECODING_MODELS or architecture in _TRANSFORMERS_BACKEND_MODELS:
            continue
        try:
            yield architecture, registered.load_model_cls()
        except ImportError:
            yield architecture, None


def chats(architecture: str, model: Any) -> bool:
    """Returns whether the model generates text from prompts with media."""
    from vllm.model_executor.models.interfaces import supports_multimodal, supports_realtime, supports_transcription
    from vllm.model_executor.models.interfaces_base import is_pooling_model, is_text_generation_model

    if model is None:
        return architecture in UNLOADABLE
    transcribes_only = supports_transcription(model) and model.supports_transcription_only
    return (
        supports_multimodal(model)
        and is_text_generation_model(model)
        and not (is_pooling_model(model) or transcribes_only or supports_realtime(model))
    )


def media(model: Any) -> set[str]:
    """Returns the modalities of the model's processor: the keys of a dictionary that a method of its info returns."""
    from vllm.multimodal.processing import BaseProcessingInfo

    info = model._processor_factory.info
    found: list[Any] = [info] if inspect.isclass(info) else [*vars(sys.modules[info.__module__]).values()]
    infos: list[Any] = [each for each in found if inspect.isclass(each) and issubclass(each, BaseProcessingInfo)]
    sources = [source for each in infos for source in _limit_sources(each)]
    return {modality for source in sources for modality in re.findall(r'"(image|audio|video)"', source)}


def _limit_sources(info: Any) -> Iterator[str]:
    """Yields the source of the method that returns the limits, and of those that it extends."""
    for base in info.__mro__:
        if method := vars(base).get("get_supported_mm_limits"):
            source = inspect.getsource(method)
            yield source
            if "super()" not in source:
                return


def generates_text(model: Any) -> bool:
    """Returns whether the model generates text from text alone."""
    from vllm.model_executor.models.interfaces import supports_multimodal
    from vllm.model_executor.models.interfaces_base import is_pooling_model, is_text_generation_model

    return is_text_generation_model(model) and not (is_pooling_model(model) or supports_multimodal(model))


def config_types() -> set[str]:
    """Returns the model types whose config.json needs no code of the model's repository."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES
    from vllm.transformers_utils.config import _CONFIG_REGISTRY

    return {*CONFIG_MAPPING_NAMES, *_CONFIG_REGISTRY.keys()}


def text_types() -> set[str]:
    """Returns the model types of texts that transformers loads."""
    from transformers.models.auto import modeling_auto

    mappings = ("CAUSAL_LM", "MASKED_LM", "TEXT_ENCODING")
    return {name for mapping in mappings for name in getattr(modeling_auto, f"MODEL_FOR_{mapping}_MAPPING_NAMES")}


def further_texts() -> set[str]:
    """Returns the architectures of texts that vLLM does not register, but runs: with transformers, or by converting a
    registered one to another kind."""
    import transformers
    from vllm.config.model import iter_architecture_defaults
    from vllm.model_executor.models import ModelRegistry

    suffixes = [suffix for suffix, _ in iter_architecture_defaults()]

    def runs(name: str) -> bool:
        model = getattr(transformers, name)
        ends = [suffix for suffix in suffixes if name.endswith(suffix)]
        converted = {name.removesuffix(end) + suffix for end in ends for suffix in suffixes}
        return bool(
            model.is_backend_compatible()
            or model._can_set_attn_implementation()
            or converted & ModelRegistry.models.keys()
        )

    return {
        name
        for kind, name in _text_models()
        if not _is_part(name, kind) and name not in ModelRegistry.models and runs(name)
    }


def _text_models() -> Iterator[tuple[str, str]]:
    """Yields the type and the architecture of each model of texts of transformers."""
    from transformers.models.auto import modeling_auto

    of_texts = text_types()
    for mapping in ("FOR_CAUSAL_LM_", "FOR_SEQUENCE_CLASSIFICATION_", ""):
        for kind, names in getattr(modeling_auto, f"MODEL_{mapping}MAPPING_NAMES").items():
            if mapping or kind in of_texts:
                # There is one class or several for a type.
                yield from ((kind, name) for name in ([names] if isinstance(names, str) else names))


def _is_part(architecture: str, model_type: str) -> bool:
    """Returns whether a model of texts is not a whole: a decoder without its encoder, or the reverse."""
    from transformers import CONFIG_MAPPING
    from transformers.models.auto import modeling_auto

    wholes = {
        **modeling_auto.MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES,
        **modeling_auto.MODEL_FOR_TEXT_TO_WAVEFORM_MAPPING_NAMES,
    }
    generates = architecture.endswith("ForCausalLM")
    return CONFIG_MAPPING[model_type].is_encoder_decoder or (generates and model_type in wholes)


def has_state(model: Any) -> bool:
    """Returns whether layers of the model keep a state that is not the keys and values of each token."""
    from vllm.model_executor.models.interfaces import has_inner_state, is_attention_free, is_hybrid

    return bool(has_inner_state(model) or is_attention_free(model) or is_hybrid(model))


def transcribes(model: Any) -> bool:
    """Returns whether the model transcribes complete audio."""
    from vllm.model_executor.models.interfaces import supports_realtime, supports_transcription
    from vllm.model_executor.models.interfaces_base import is_pooling_model

    return supports_transcription(model) and not (is_pooling_model(model) or supports_realtime(model))


def pooling_kinds() -> dict[str, list[str]]:
    """Returns the architectures that do not generate text by what they compute, as vLLM's registry groups them."""
    from vllm.model_executor.models import registry

    late_interaction = registry._LATE_INTERACTION_MODELS
    generates = registry._TEXT_GENERATION_MODELS.keys() | registry._MULTIMODAL_MODELS.keys()
    return {
        "classification": [*registry._SEQUENCE_CLASSIFICATION_MODELS],
        "embedding": [*registry._EMBEDDING_MODELS.keys() - generates - late_interaction.keys()],
        "late interaction": [*late_interaction],
        "reward": [*registry._REWARD_MODELS],
        "token classification": [*registry._TOKEN_CLASSIFICATION_MODELS],
    }


JSON_TYPES: dict[Any, str] = {
    **{kind: kind.__name__ for kind in (bool, int, float, str)},
    **dict.fromkeys((list, set), "list[JsonValue]"),
    dict: "dict[str, JsonValue]",
}


def json_type(annotation: Any) -> str:
    """Returns the type of the JSON values of an argument: its choices, or `JsonValue` for several or unknown types."""
    members = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
    choices = [choice for member in members if get_origin(member) is Literal for choice in get_args(member)]
    kinds = {get_origin(member) or member for member in members} - {Literal, NoneType}
    if choices and not kinds:
        known = {f"Literal[{', '.join(map(repr, choices))}]"}
    else:
        known = {JSON_TYPES.get(kind, "JsonValue") for kind in kinds | {*map(type, choices)}}
    if len(known) != 1 or known == {"JsonValue"}:
        return "JsonValue"
    return " | ".join([*known, *(["None"] if NoneType in members else [])])


def generated() -> str:
    from vllm import __version__
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.reasoning import ReasoningParserManager
    from vllm.tool_parsers import ToolParserManager

    known = [*models()]
    chatting = [architecture for architecture, model in known if chats(architecture, model)]
    media_of = [(name, media(model)) for name, model in known if model is not None and chats(name, model)]
    chat_media = "".join(
        f'    "{modality}": {_frozenset((name for name, each in media_of if modality in each), "    ")},\n'
        for modality in ("image", "audio", "video")
    )
    texts = [architecture for architecture, model in known if model is not None and generates_text(model)]
    stateful = [architecture for architecture, model in known if model is not None and has_state(model)]
    transcribing = [architecture for architecture, model in known if model is not None and transcribes(model)]
    pooling = "".join(
        f'    "{kind}": {_frozenset(architectures, "    ")},\n' for kind, architectures in pooling_kinds().items()
    )
    arguments = "".join(f"    {argument.name}: {json_type(argument.type)}\n" for argument in fields(AsyncEngineArgs))
    text = f'''"""Architectures, arguments and parsers of vLLM, from `python -m scripts.vllm_architectures`.

Architectures are names in the field `architectures` of a model's config.json.
"""

# ruff: noqa: SIM905 - a list would have a line for each name

from __future__ import annotations

from typing import Final, Literal

from pydantic import JsonValue
from typing_extensions import TypedDict

from cornserve_tasklib.media import Modality

VLLM_VERSION: Final = "{__version__}"

MULTIMODAL_CHATS: Final = {_frozenset(chatting)}
"""They generate text from prompts with media."""

CHAT_MEDIA: Final[dict[Modality, frozenset[str]]] = {{
{chat_media}}}
"""Architectures of `MULTIMODAL_CHATS` that accept media of a modality."""

TEXT_CHATS: Final = {_frozenset(texts)}
"""They generate text from text."""

STATEFUL: Final = {_frozenset(stateful)}
"""Layers of these models keep a state that is not the keys and values of each token."""

FURTHER_TEXTS: Final = {_frozenset(further_texts())}
"""Models of texts that vLLM runs with transformers, or by converting one of its own to another kind."""

TRANSCRIBERS: Final = {_frozenset(transcribing)}
"""They transcribe speech. Those that are not in `MULTIMODAL_CHATS` do nothing else."""

PoolingKind = Literal["classification", "embedding", "late interaction", "reward", "token classification"]

POOLING: Final[dict[PoolingKind, frozenset[str]]] = {{
{pooling}}}
"""They compute vectors or scores of texts, and do not generate text. vLLM converts other models to some of these kinds,
by the end of their name."""

CONFIG_TYPES: Final = {_frozenset(config_types())}
"""Values of `model_type` in a config.json that transformers or vLLM know: others need code of the repository."""

TEXT_TYPES: Final = {_frozenset(text_types())}
"""Values of `model_type` of models of texts that transformers knows."""

TOOL_PARSERS: Final = {_frozenset(ToolParserManager.list_registered())}

REASONING_PARSERS: Final = {_frozenset(ReasoningParserManager.list_registered())}


class EngineArguments(TypedDict, total=False):
    """The fields of vLLM's `AsyncEngineArgs`. A `JsonValue` has several types, or one that is not of JSON."""

{arguments}'''
    ruff = [sys.executable, "-m", "ruff", "format", "--stdin-filename", str(FILE), "-"]
    return subprocess.run(ruff, input=text, capture_output=True, text=True, check=True).stdout


def _frozenset(names: Iterable[str], indent: str = "") -> str:
    inner = indent + 8 * " "
    lines = fill(" ".join(sorted(names)), 120, initial_indent=inner, subsequent_indent=inner, break_on_hyphens=False)
    return f'frozenset(\n{indent}    """\n{lines}\n{indent}    """.split()\n{indent})'


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="fail if the file differs from the installed vLLM")
    options = parser.parse_args()
    content = generated()
    if not options.check:
        FILE.write_text(content)
    elif FILE.read_text() != content:
        sys.exit(f"{FILE} differs from the installed vLLM: run `python -m scripts.vllm_architectures`")


if __name__ == "__main__":
    main()
