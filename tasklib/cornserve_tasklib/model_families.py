"""Model families: derives the tasks that serve a model, so that deploying a known model requires no Python."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, Final

from cornserve.task import Task
from cornserve.task.errors import DefinitionError
from cornserve.task.unit import unit_tasks
from cornserve_tasklib.classification import Classify
from cornserve_tasklib.drawing_paths import drawing_paths
from cornserve_tasklib.embedding import Embed
from cornserve_tasklib.encoder import EncoderOptions
from cornserve_tasklib.encoder_families import ENCODER_MODALITIES, MEDIA_OPTIONS
from cornserve_tasklib.engine import EngineOptions
from cornserve_tasklib.hub import check_model_id
from cornserve_tasklib.image_generation import ImageGeneratorOptions
from cornserve_tasklib.image_tasks import EditImages, GenerateImages
from cornserve_tasklib.llm import Chat, Mllm
from cornserve_tasklib.media import Modality
from cornserve_tasklib.media_options import MediaOptions
from cornserve_tasklib.model_ids import summarize_id
from cornserve_tasklib.model_options import IMAGE_GENERATOR, ModelOptions
from cornserve_tasklib.model_summary import ModelSummary, summarize_directory
from cornserve_tasklib.omni import OmniChat, OmniOptions
from cornserve_tasklib.prefill_decode import DecodeTask, PrefillDecodeChat, PrefillDecodeMllm
from cornserve_tasklib.scoring import Score
from cornserve_tasklib.speaking_chat import SpeakingChat
from cornserve_tasklib.talker import TalkerOptions, VocoderOptions
from cornserve_tasklib.text_to_speech import Speak
from cornserve_tasklib.transcription import Transcribe
from cornserve_tasklib.vllm_architectures import (
    CONFIG_TYPES,
    FURTHER_TEXTS,
    MULTIMODAL_CHATS,
    POOLING,
    STATEFUL,
    TEXT_CHATS,
    TEXT_TYPES,
    TRANSCRIBERS,
    VLLM_VERSION,
    PoolingKind,
)

_WHOLE_IMAGE_PIPELINES = ("StableDiffusion3Pipeline", "FluxPipeline")

PIPELINES = ("QwenImagePipeline", "QwenImageEditPipeline", *_WHOLE_IMAGE_PIPELINES)
"""The supported pipelines of diffusers."""

_SPEAKING_TYPES = ("qwen2_5_omni", "qwen3_omni_moe")
"""The types of models that can have a talker."""

WITHOUT_ENDPOINT: Final[tuple[PoolingKind, ...]] = ("late interaction", "reward", "token classification")
"""The kinds of models whose results no endpoint has."""

ModelPaths = dict[str, Task[Any, Any]]
"""Tasks by path name. The first one is the default."""


def default_paths(
    model: str,
    options: ModelOptions = ModelOptions(),  # noqa: B008 - it is frozen
    summary: ModelSummary | None = None,
) -> ModelPaths:
    """Returns the paths by which a model can be served.

    Args:
        model: a Hugging Face id, or the absolute path of a model directory.
        options: for the executors of the paths.
        summary: the facts in the files of the model. By default, the files of a directory are read, and the name of an
            id decides: one of an unknown family is assumed to be a language model.

    Raises:
        DefinitionError: the model is not of a known family, or the options are invalid.
    """
    paths = _paths(model, options, summary)
    if options.media.key and not any(isinstance(path, Mllm) for path in paths.values()):
        raise DefinitionError(f"media_options: {model} receives no media in chats: remove them")
    if options.drawer is not None:
        image_options = {name: given for name, given in options.by_executor.items() if name == IMAGE_GENERATOR}
        drawer_paths = _paths(options.drawer, ModelOptions(by_executor=image_options), options.drawer_summary)
        return {**drawing_paths(model, paths, options.drawer, drawer_paths)}
    return paths


def alternatives(paths: ModelPaths, name: str) -> ModelPaths:
    """Returns the paths with the request and response type of the named one."""
    kind = paths[name].request_type, paths[name].response_type
    return {other: path for other, path in paths.items() if (path.request_type, path.response_type) == kind}


def planned_paths(paths: ModelPaths, names: Collection[str]) -> ModelPaths:
    """Returns the alternatives of the first named path, or else of the default one, from which a plan chooses.

    Paths on which prefill and decode run apart are among them only if one of these is named, because each of their
    executors has to be measured.
    """
    first = next(iter(names or paths))
    with_splits = any(_has_decode(paths[name]) for name in names)
    return {name: path for name, path in alternatives(paths, first).items() if with_splits or not _has_decode(path)}


def _has_decode(path: Task[Any, Any]) -> bool:
    return any(isinstance(unit, DecodeTask) for unit in unit_tasks(path))


def _paths(model: str, options: ModelOptions, summary: ModelSummary | None) -> ModelPaths:
    if Path(model).is_absolute():
        summary = summary or summarize_directory(Path(model))
    else:
        try:
            check_model_id(model)
        except ValueError as error:
            raise DefinitionError(str(error)) from error
        summary = summary or summarize_id(model)
    if summary.pipeline is not None:
        return _pipeline_path(model, summary.pipeline, options)
    architectures = summary.architectures
    _check_code(model, summary, options)
    _check_pooling(model, architectures)
    if all(_classifies_texts(name, summary.model_type) for name in architectures):
        _check_implementation(model, summary)
        return _classifier_paths(model, summary.labels, options)
    if architectures == ["VitsModel"]:
        if summary.tokenizer_problem:
            raise DefinitionError(f"{model} {summary.tokenizer_problem}")
        return _speech_path(model, options)
    if _is_embedding_model(summary):
        _check_implementation(model, summary)
        return _embed_path(model, options)
    transcribes = bool(TRANSCRIBERS.intersection(architectures))
    if transcribes and not MULTIMODAL_CHATS.intersection(architectures):
        return _transcribe_path(model, options)
    model_type = summary.model_type or ""
    modalities = separate_modalities(summary)
    splits_prefill = STATEFUL.isdisjoint(architectures)
    parts = ("prefill", "decode") if splits_prefill else ()
    if modalities:
        has_talker = model_type in _SPEAKING_TYPES and summary.speaks
        return {
            **_multimodal_paths(
                model, model_type, modalities, summary.tool_parser, has_talker, transcribes, parts, options
            ),
            **(_split_multimodal_paths(model, modalities, summary.tool_parser, options) if splits_prefill else {}),
        }
    if MULTIMODAL_CHATS.intersection(architectures):
        return _whole_path(model, summary.tool_parser, transcribes, options)
    if any(name in TEXT_CHATS or name.endswith("ForCausalLM") for name in architectures):
        _check_implementation(model, summary)
        return {
            **_chat_path(model, summary.tool_parser, parts, options),
            **(_split_chat_paths(model, summary.tool_parser, options) if splits_prefill else {}),
        }
    raise DefinitionError(f"unsupported architecture {summary.kind} of {model}: {_supported()}")


def separate_modalities(summary: ModelSummary) -> tuple[Modality, ...]:
    """Returns the modalities that a separate encoder can encode."""
    return next((ENCODER_MODALITIES[name] for name in summary.architectures if name in ENCODER_MODALITIES), ())


def _pipeline_path(model: str, pipeline: str, options: ModelOptions) -> ModelPaths:
    match pipeline:
        case "QwenImagePipeline":
            return _image_path(model, options)
        case "QwenImageEditPipeline":
            return _edit_path(model, options)
        case _ if pipeline in _WHOLE_IMAGE_PIPELINES:
            return _whole_image_path(model, options)
    raise DefinitionError(f"unsupported pipeline {pipeline} of {model}: use one of {', '.join(PIPELINES)}")


def _supported() -> str:
    return (
        "use a text model (…ForCausalLM), an embedding model (…Model), a classifier or cross-encoder "
        "(…ForSequenceClassification), a speech recognition model, VITS, or a multimodal model of "
        f"vLLM {VLLM_VERSION}"
    )


def _embed_path(model: str, options: ModelOptions) -> ModelPaths:
    engine = _engine_without_adapters(model, "an embedding model", "embedding", options)
    return {"embed": Embed(model_id=model, revision=options.revision, options=engine)}


def _transcribe_path(model: str, options: ModelOptions) -> ModelPaths:
    engine = _engine_without_adapters(model, "a speech recognition model", "transcription", options)
    return {"transcribe": Transcribe(model_id=model, revision=options.revision, options=engine)}


def _speech_path(model: str, options: ModelOptions) -> ModelPaths:
    options.check_executors(model, ["text_to_speech"])
    if options.lora is not None:
        raise DefinitionError(f"{model} is a text-to-speech model, without LoRA adapters: remove lora")
    return {"speech": Speak(model_id=model, revision=options.revision, options=options.text_to_speech())}


def _image_path(model: str, options: ModelOptions) -> ModelPaths:
    image_options = _image_options(model, IMAGE_GENERATOR, options)
    fields: dict[str, Any] = {"model_id": model, "revision": options.revision, "options": image_options}
    return {"image": GenerateImages(**fields), "split": GenerateImages(**fields, split=True)}


def _whole_image_path(model: str, options: ModelOptions) -> ModelPaths:
    image_options = _image_options(model, IMAGE_GENERATOR, options)
    return {"image": GenerateImages(model_id=model, revision=options.revision, options=image_options)}


def _edit_path(model: str, options: ModelOptions) -> ModelPaths:
    image_options = _image_options(model, "image_editor", options)
    fields: dict[str, Any] = {"model_id": model, "revision": options.revision, "options": image_options}
    return {"edit": EditImages(**fields), "split": EditImages(**fields, split=True)}


def _image_options(model: str, executor: str, options: ModelOptions) -> ImageGeneratorOptions:
    """Returns the options of the only executor. Raises `DefinitionError` for others, and for LoRA adapters."""
    options.check_executors(model, [executor])
    if options.lora is not None:
        raise DefinitionError(f"{model} is an image generation model, without LoRA adapters: remove lora")
    return options.image_generator(executor)


def _classifier_paths(model: str, labels: int, options: ModelOptions) -> ModelPaths:
    """Returns the paths of a classifier. One with a single label is a cross-encoder or a reward model."""
    executors = ["scoring", "classification"] if labels == 1 else ["classification"]
    options.check_executors(model, executors)
    engines = {name: _without_adapters(model, "a classifier", name, options) for name in executors}
    fields: dict[str, Any] = {"model_id": model, "revision": options.revision}
    classify = Classify(**fields, options=engines["classification"])
    if labels != 1:
        return {"classify": classify}
    return {"score": Score(**fields, options=engines["scoring"]), "classify": classify}


def _check_code(model: str, summary: ModelSummary, options: ModelOptions) -> None:
    """Raises `DefinitionError` for a model that needs code of its repository, unless this code is trusted."""
    is_trusted = any(given.get("trust_remote_code") is True for given in options.by_executor.values())
    if summary.has_own_code and summary.model_type not in CONFIG_TYPES and not is_trusted:
        raise DefinitionError(
            f"{model} ({summary.kind}) needs Python code of its repository, which has all permissions of the "
            "executor: read the code, and deploy the model with --trust-remote-code (option trust_remote_code) and a "
            "revision"
        )


def _check_pooling(model: str, architectures: list[str]) -> None:
    """Raises `DefinitionError` for a model whose results no endpoint of Cornserve has."""
    for kind in WITHOUT_ENDPOINT:
        if POOLING[kind].intersection(architectures):
            raise DefinitionError(
                f"{model} is a model for {kind} ({', '.join(architectures)}), which vLLM serves at /pooling, an "
                f"endpoint that Cornserve does not have: {_supported()}"
            )


def _check_implementation(model: str, summary: ModelSummary) -> None:
    """Raises `DefinitionError` for a model of texts that vLLM cannot run. The code of a repository can implement it."""
    known = TEXT_CHATS.union(FURTHER_TEXTS, MULTIMODAL_CHATS, *POOLING.values())
    unknown = [name for name in summary.architectures if name not in known]
    if unknown and not summary.has_own_code:
        raise DefinitionError(
            f"{model} is a {unknown[0]}, which vLLM {VLLM_VERSION} does not implement and cannot run with "
            f"transformers: {_supported()}"
        )


def _engine_without_adapters(model: str, kind: str, executor: str, options: ModelOptions) -> EngineOptions:
    """Returns the options of the only executor. Raises `DefinitionError` for others, and for LoRA adapters."""
    options.check_executors(model, [executor])
    return _without_adapters(model, kind, executor, options)


def _without_adapters(model: str, kind: str, executor: str, options: ModelOptions) -> EngineOptions:
    """Returns the options of an executor. Raises `DefinitionError` for LoRA adapters."""
    engine = options.engine(executor)
    if options.lora is not None or engine.lora_modules:
        raise DefinitionError(f"{model} is {kind}, without LoRA adapters: remove lora and lora_modules")
    return engine


def _chat_path(model: str, tool_parser: str | None, parts: Sequence[str], options: ModelOptions) -> ModelPaths:
    options.check_executors(model, ["llm", *parts])
    return {"chat": Chat(**_chat_fields(model, tool_parser, options))}


def _split_chat_paths(model: str, tool_parser: str | None, options: ModelOptions) -> ModelPaths:
    """Returns the paths with prefill and decode executors, of which the decode executors serve whole requests, too."""
    fields = _chat_fields(model, tool_parser, options) | _part_options(options)
    return {"p-d": PrefillDecodeChat(**fields), "pd": PrefillDecodeChat(**fields, split_prefill=False)}


def _part_options(options: ModelOptions) -> dict[str, EngineOptions]:
    return {"options": options.part("prefill"), "decode_options": options.part("decode")}


def _chat_fields(model: str, tool_parser: str | None, options: ModelOptions) -> dict[str, Any]:
    """Returns the fields that `Chat` and `Mllm` share. Raises `DefinitionError` if the options are invalid."""
    return {
        "model_id": model,
        "revision": options.revision,
        "tool_parser": tool_parser,
        "lora": options.lora,
        "options": options.language_engine(),
        **options.chat_options(),
    }


def _multimodal_paths(
    model: str,
    model_type: str,
    modalities: tuple[Modality, ...],
    tool_parser: str | None,
    has_talker: bool,
    transcribes: bool,
    parts: Sequence[str],
    options: ModelOptions,
) -> ModelPaths:
    further = [
        *parts,
        *(["talker", "vocoder", "omni"] if has_talker else []),
        *(["transcription"] if transcribes else []),
    ]
    options.check_executors(model, ["llm", "encoder", *further])
    _check_media_options(model, model_type, options.media)
    fields = _multimodal_fields(model, modalities, tool_parser, options)
    split = Mllm(**fields, split_encoder=True, with_enc=False)
    paths: ModelPaths = {
        "monolith": Mllm(**fields),
        "e-l": split,
        "e-el": Mllm(**fields, split_encoder=True),
    }
    if len(split.encoders) > 1:
        paths["joint-e-l"] = Mllm(**fields, split_encoder=True, with_enc=False, joint_encoder=True)
        paths["joint-e-el"] = Mllm(**fields, split_encoder=True, joint_encoder=True)
    paths |= _speaking_paths(model, model_type, options) if has_talker else {}
    return paths | (_also_transcribe(model, options) if transcribes else {})


def _split_multimodal_paths(
    model: str, modalities: tuple[Modality, ...], tool_parser: str | None, options: ModelOptions
) -> ModelPaths:
    """Returns the paths with prefill and decode executors. With separate encoders, the decode executors serve whole
    requests, too."""
    fields = _multimodal_fields(model, modalities, tool_parser, options) | _part_options(options)
    encoder_apart: dict[str, Any] = {"split_encoder": True, "with_enc": False}
    return {
        "ep-d": PrefillDecodeMllm(**fields),
        "e-p-d": PrefillDecodeMllm(**fields, **encoder_apart),
        "e-pd": PrefillDecodeMllm(**fields, **encoder_apart, split_prefill=False),
    }


def _multimodal_fields(
    model: str, modalities: tuple[Modality, ...], tool_parser: str | None, options: ModelOptions
) -> dict[str, Any]:
    """Returns the fields of all paths of a model with separate encoders. See `_chat_fields`."""
    return _chat_fields(model, tool_parser, options) | {
        "encoder_modalities": modalities,
        "encoder_options": options.named("encoder", EncoderOptions),
        "media_options": options.media,
    }


def _whole_path(model: str, tool_parser: str | None, transcribes: bool, options: ModelOptions) -> ModelPaths:
    """Returns the paths of a multimodal model whose encoders do not run apart."""
    options.check_executors(model, ["llm", *(["transcription"] if transcribes else [])])
    fields = _chat_fields(model, tool_parser, options)
    whole = Mllm(**fields, encoder_modalities=(), media_options=options.media)
    return {"monolith": whole} | (_also_transcribe(model, options) if transcribes else {})


def _also_transcribe(model: str, options: ModelOptions) -> ModelPaths:
    """Returns the path on which a model for chats only transcribes, without its adapters."""
    engine = options.engine("transcription").model_copy(update={"lora_modules": {}})
    return {"transcribe": Transcribe(model_id=model, revision=options.revision, options=engine)}


def _speaking_paths(model: str, model_type: str, options: ModelOptions) -> ModelPaths:
    """Returns the paths of chats whose responses are spoken, which have another type than those of other chats."""

    def apart(*, split_encoder: bool = False, split_vocoder: bool = False) -> SpeakingChat:
        return SpeakingChat(
            model_id=model,
            revision=options.revision,
            reads_states=model_type == "qwen2_5_omni",
            split_encoder=split_encoder,
            split_vocoder=split_vocoder,
            options=options.engine("llm"),
            encoder_options=options.named("encoder", EncoderOptions),
            talker_options=options.named("talker", TalkerOptions),
            vocoder_options=options.named("vocoder", VocoderOptions),
            media_options=options.media,
        )

    whole = OmniChat(model_id=model, revision=options.revision, options=options.named("omni", OmniOptions))
    return {
        "speech": apart(),
        "e-speech": apart(split_encoder=True),
        "speech-split": apart(split_vocoder=True),
        "speech-monolith": whole,
    }


def _check_media_options(model: str, model_type: str, options: MediaOptions) -> None:
    """Raises `DefinitionError` for options of media that the model does not have."""
    known = MEDIA_OPTIONS.get(model_type)
    if known is None:  # The executors know the options of the type.
        return
    for name in options.given:
        if name not in known:
            advice = f"use {', '.join(sorted(known))}" if known else "remove it"
            raise DefinitionError(f"media_options.{name}: {model} does not have this option: {advice}")


def _is_embedding_model(summary: ModelSummary) -> bool:
    """Detects a model of texts without a head, or a language model with the `modules.json` of sentence-transformers."""
    return summary.embeds or all(_embeds_texts(name, summary.model_type) for name in summary.architectures)


def _embeds_texts(architecture: str, model_type: str | None) -> bool:
    if architecture in POOLING["embedding"]:
        return True
    base = architecture.removesuffix("Model")
    has_head = base.endswith(("Head", "MT"))
    return (
        base != architecture
        and not has_head
        and _reads_texts(base, model_type)
        and architecture not in MULTIMODAL_CHATS | TEXT_CHATS
    )


def _classifies_texts(architecture: str, model_type: str | None) -> bool:
    base = architecture.removesuffix("ForSequenceClassification")
    return base != architecture and (architecture in POOLING["classification"] or _reads_texts(base, model_type))


def _reads_texts(base: str, model_type: str | None) -> bool:
    """Returns whether a model is one of texts.

    Args:
        base: the name of its architecture without the end that names its task.
    """
    return f"{base}ForCausalLM" in TEXT_CHATS or model_type in TEXT_TYPES
