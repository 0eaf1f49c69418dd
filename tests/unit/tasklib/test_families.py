"""Model families: the paths that serve a model."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import JsonValue

from cornserve.task import Task
from cornserve.task.errors import DefinitionError
from cornserve.task.unit import unit_tasks
from cornserve_tasklib import (
    Chat,
    Classify,
    DrawingChat,
    EditImages,
    Embed,
    EncoderTask,
    EngineOptions,
    GenerateImages,
    ImageGeneratorOptions,
    Mllm,
    OmniChat,
    OmniOptions,
    Score,
    Speak,
    SpeakingChat,
    TalkerOptions,
    TextToSpeechOptions,
    Transcribe,
    VocoderOptions,
)
from cornserve_tasklib.encoder_families import ENCODER_MODALITIES
from cornserve_tasklib.media import MODALITIES, Modality
from cornserve_tasklib.media_options import MediaOptions
from cornserve_tasklib.model_families import alternatives, default_paths, planned_paths
from cornserve_tasklib.model_options import ModelOptions
from cornserve_tasklib.vllm_architectures import TRANSCRIBERS

HERMES = 'For each call: <tool_call>\n{\\"name\\": <function-name>, \\"arguments\\": <args-json-object>}\n</tool_call>'
MULTIMODAL_IDS = [
    "Qwen/Qwen2.5-VL-7B-Instruct",
    "OpenGVLab/InternVL3-8B-hf",
    "llava-hf/llava-1.5-7b-hf",
    "Qwen/Qwen2-VL-7B-Instruct",
    "llava-hf/llava-onevision-qwen2-7b-ov-hf",
    "google/gemma-3-4b-it",
    "Qwen/Qwen3-VL-8B-Instruct",
]
LLAMA = 'Respond as {"name": function name, "parameters": dictionary of argument name and its value}.'


def model_directory(path: Path, architecture: str, model_type: str = "", **files: str) -> str:
    (path / "config.json").write_text(json.dumps({"architectures": [architecture], "model_type": model_type}))
    for name, text in files.items():
        (path / name.replace("__", ".")).write_text(text)
    return str(path)


def test_a_language_model_has_a_chat_path(tmp_path: Path) -> None:
    model = model_directory(tmp_path, "LlamaForCausalLM")

    assert planned_paths(default_paths(model), ()) == {"chat": Chat(model_id=model)}


def executors_of(path: Task[Any, Any]) -> dict[str, str]:
    """Returns the keys of a path's executors, by their kind."""
    return {unit.executor: unit.key for unit in unit_tasks(path)}


def test_prefill_and_decode_of_a_language_model_run_apart(tmp_path: Path) -> None:
    paths = default_paths(model_directory(tmp_path, "LlamaForCausalLM"))

    assert [*paths] == ["chat", "p-d", "pd"]
    assert executors_of(paths["p-d"]).keys() == {"prefill", "decode"}
    assert executors_of(paths["pd"]) == {"decode": executors_of(paths["p-d"])["decode"]}


def test_prefill_and_decode_of_a_multimodal_model_run_apart(tmp_path: Path) -> None:
    paths = default_paths(model_directory(tmp_path, *QWEN))

    assert executors_of(paths["ep-d"]).keys() == {"prefill", "decode"}
    assert executors_of(paths["e-p-d"]).keys() == {"encoder", "prefill", "decode"}
    assert executors_of(paths["e-p-d"])["encoder"] == executors_of(paths["e-l"])["encoder"]
    whole = {name: key for name, key in executors_of(paths["e-p-d"]).items() if name != "prefill"}
    assert executors_of(paths["e-pd"]) == whole


def test_layers_with_a_state_do_not_run_apart(tmp_path: Path) -> None:
    assert [*default_paths(model_directory(tmp_path, "MambaForCausalLM"))] == ["chat"]


def test_a_plan_chooses_from_paths_with_prefill_apart_if_one_is_named(tmp_path: Path) -> None:
    paths = default_paths(model_directory(tmp_path, *QWEN))

    assert [*planned_paths(paths, ())] == ["monolith", "e-l", "e-el"]
    assert [*planned_paths(paths, ["monolith", "ep-d"])] == ["monolith", "e-l", "e-el", "ep-d", "e-p-d", "e-pd"]


@pytest.mark.parametrize(("template", "parser"), [(HERMES, "hermes"), (LLAMA, "llama3_json"), ("{{ tools }}", None)])
def test_the_tool_parser_is_derived_from_the_chat_template(tmp_path: Path, template: str, parser: str | None) -> None:
    model = model_directory(tmp_path, "Qwen2ForCausalLM", chat_template__jinja=template)

    assert planned_paths(default_paths(model), ()) == {"chat": Chat(model_id=model, tool_parser=parser)}


def test_options_set_the_parsers_and_the_template(tmp_path: Path) -> None:
    model = model_directory(tmp_path, "Qwen2ForCausalLM", chat_template__jinja=HERMES)
    options = ModelOptions(
        by_executor={
            "*": {"tool_parser": "qwen3_xml", "chat_template": "{{ messages }}"},
            "llm": {"reasoning_parser": "qwen3"},
        }
    )

    assert planned_paths(default_paths(model, options), ()) == {
        "chat": Chat(model_id=model, tool_parser="qwen3_xml", reasoning_parser="qwen3", chat_template="{{ messages }}")
    }


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"reasoning_parser": 7}, "reasoning_parser: must be a valid string, not 7"),
        ({"reasoning_parser": "abacus"}, r"reasoning_parser: vLLM \S+ has no parser 'abacus': choose from .* qwen3,"),
        ({"tool_parser": "abacus"}, r"tool_parser: vLLM \S+ has no parser 'abacus': choose from .* hermes,"),
        ({"tool_parser": ""}, "tool_parser: vLLM .* has no parser ''"),
        ({"chat_template": ""}, "chat_template: must have at least 1 character"),
    ],
)
def test_invalid_options_of_chats_are_named(tmp_path: Path, options: dict[str, JsonValue], reason: str) -> None:
    model = model_directory(tmp_path, "Qwen2ForCausalLM", chat_template__jinja=HERMES)

    with pytest.raises(DefinitionError, match=f"invalid options of the executor 'llm': {reason}"):
        default_paths(model, ModelOptions(by_executor={"*": options}))


def test_null_sets_no_parser(tmp_path: Path) -> None:
    model = model_directory(tmp_path, "Qwen2ForCausalLM", chat_template__jinja=HERMES)
    options = ModelOptions(by_executor={"*": {"tool_parser": None}})

    assert planned_paths(default_paths(model, options), ()) == {"chat": Chat(model_id=model)}


def test_a_model_without_chats_has_no_parsers(tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match="reasoning_parser"):
        default_paths(
            model_directory(tmp_path, "BertModel"), ModelOptions(by_executor={"*": {"reasoning_parser": "qwen3"}})
        )


def test_the_chat_template_may_be_in_the_tokenizers_configuration(tmp_path: Path) -> None:
    model = model_directory(tmp_path, "Qwen2ForCausalLM", tokenizer_config__json=json.dumps({"chat_template": HERMES}))

    assert planned_paths(default_paths(model), ()) == {"chat": Chat(model_id=model, tool_parser="hermes")}


def test_a_model_without_a_head_is_an_embedding_model(tmp_path: Path) -> None:
    model = model_directory(tmp_path, "BertModel")

    assert default_paths(model) == {"embed": Embed(model_id=model)}


def test_a_model_of_sentence_transformers_is_an_embedding_model(tmp_path: Path) -> None:
    model = model_directory(tmp_path, "Qwen3ForCausalLM", modules__json="[]")

    assert default_paths(model) == {"embed": Embed(model_id=model)}


@pytest.mark.parametrize("labels", [{"id2label": {"0": "LABEL_0"}}, {"num_labels": 1}])
def test_a_classifier_with_one_label_scores_and_classifies(tmp_path: Path, labels: dict[str, object]) -> None:
    config = {"architectures": ["BertForSequenceClassification"], **labels}
    (tmp_path / "config.json").write_text(json.dumps(config))

    paths = default_paths(str(tmp_path))

    assert paths == {"score": Score(model_id=str(tmp_path)), "classify": Classify(model_id=str(tmp_path))}
    assert list(alternatives(paths, "score")) == ["score"]


def test_a_classifier_with_several_labels_only_classifies(tmp_path: Path) -> None:
    model = model_directory(tmp_path, "BertForSequenceClassification")

    assert default_paths(model) == {"classify": Classify(model_id=model)}


@pytest.mark.parametrize(
    ("architecture", "kind"),
    [
        ("HF_ColBERT", "late interaction"),
        ("ColBERTModernBertModel", "late interaction"),
        ("Qwen2ForProcessRewardModel", "reward"),
        ("BertForTokenClassification", "token classification"),
    ],
)
def test_a_model_whose_results_no_endpoint_has_is_refused_by_its_kind(
    tmp_path: Path, architecture: str, kind: str
) -> None:
    model = model_directory(tmp_path, architecture, modules__json="[]")

    with pytest.raises(DefinitionError, match=f"is a model for {kind} .*, which vLLM serves at /pooling"):
        default_paths(model)


def pipeline_directory(path: Path, pipeline: object) -> str:
    (path / "model_index.json").write_text(json.dumps({"_class_name": pipeline}))
    return str(path)


def test_qwen_image_runs_whole_or_split(tmp_path: Path) -> None:
    for model in (pipeline_directory(tmp_path, "QwenImagePipeline"), "Qwen/Qwen-Image", "Qwen/Qwen-Image-2512"):
        whole, split = GenerateImages(model_id=model), GenerateImages(model_id=model, split=True)
        assert default_paths(model) == {"image": whole, "split": split}


def test_a_language_model_draws_on_each_path_of_the_image_model(tmp_path: Path) -> None:
    model = model_directory(tmp_path, "LlamaForCausalLM")
    options = ModelOptions(by_executor={"image_generator": {"max_pixels": 65536}}, drawer="Qwen/Qwen-Image")
    drawers = {
        split: GenerateImages(model_id="Qwen/Qwen-Image", options=ImageGeneratorOptions(max_pixels=65536), split=split)
        for split in (False, True)
    }

    assert planned_paths(default_paths(model, options), ()) == {
        "chat": DrawingChat(chat=Chat(model_id=model), drawer=drawers[False], size="256x256"),
        "chat-split": DrawingChat(chat=Chat(model_id=model), drawer=drawers[True], size="256x256"),
    }
    drawing = default_paths("Qwen/Qwen2.5-VL-7B-Instruct", ModelOptions(drawer="black-forest-labs/FLUX.1-dev"))
    assert list(drawing) == ["monolith", "e-l", "e-el", "ep-d", "e-p-d", "e-pd"]


def test_only_chats_draw_and_only_image_models_are_drawers() -> None:
    with pytest.raises(DefinitionError, match="drawer: Qwen/Qwen-Image is not a model for chats: remove drawer"):
        default_paths("Qwen/Qwen-Image", ModelOptions(drawer="Qwen/Qwen-Image"))
    with pytest.raises(DefinitionError, match="drawer: Qwen/Qwen3-8B does not generate images: use a model such as"):
        default_paths("Qwen/Qwen3-8B", ModelOptions(drawer="Qwen/Qwen3-8B"))


def test_qwen_image_edit_has_an_edit_path(tmp_path: Path) -> None:
    for model in (pipeline_directory(tmp_path, "QwenImageEditPipeline"), "Qwen/Qwen-Image-Edit"):
        assert default_paths(model) == {
            "edit": EditImages(model_id=model),
            "split": EditImages(model_id=model, split=True),
        }
    options = ModelOptions(by_executor={"image_editor": {"max_steps": 20}})
    edit = EditImages(model_id="Qwen/Qwen-Image-Edit", options=ImageGeneratorOptions(max_steps=20))
    assert default_paths("Qwen/Qwen-Image-Edit", options)["edit"] == edit
    with pytest.raises(DefinitionError, match="Qwen-Image-Edit-2509 is not supported: use Qwen/Qwen-Image, "):
        default_paths("Qwen/Qwen-Image-Edit-2509")


@pytest.mark.parametrize("pipeline", ["StableDiffusion3Pipeline", "FluxPipeline"])
def test_other_image_models_run_whole(tmp_path: Path, pipeline: str) -> None:
    model = pipeline_directory(tmp_path, pipeline)
    options = ModelOptions(by_executor={"image_generator": {"max_steps": 20}})
    assert default_paths(model, options) == {
        "image": GenerateImages(model_id=model, options=ImageGeneratorOptions(max_steps=20))
    }


@pytest.mark.parametrize(
    "model",
    [
        "stabilityai/stable-diffusion-3-medium-diffusers",
        "stabilityai/stable-diffusion-3.5-medium",
        "stabilityai/stable-diffusion-3.5-large-turbo",
        "black-forest-labs/FLUX.1-dev",
        "black-forest-labs/FLUX.1-schnell",
    ],
)
def test_ids_of_other_image_models_are_known(model: str) -> None:
    assert default_paths(model) == {"image": GenerateImages(model_id=model)}


@pytest.mark.parametrize("model", ["stabilityai/stable-diffusion-xl-base-1.0", "black-forest-labs/FLUX.1-Kontext-dev"])
def test_ids_of_unsupported_image_models_are_refused(model: str) -> None:
    with pytest.raises(DefinitionError, match=f"the pipeline of {model} is not supported: use Qwen/Qwen-Image, "):
        default_paths(model)


def test_the_options_of_an_image_model_are_those_of_its_executor(tmp_path: Path) -> None:
    model = pipeline_directory(tmp_path, "QwenImagePipeline")

    options = ModelOptions(by_executor={"*": {"dtype": "float32"}, "image_generator": {"max_batch_images": 2}})

    expected = ImageGeneratorOptions(dtype="float32", max_batch_images=2)
    paths = default_paths(model, options)
    assert paths["image"] == GenerateImages(model_id=model, options=expected)
    assert paths["split"] == GenerateImages(model_id=model, options=expected, split=True)
    with pytest.raises(DefinitionError, match="max_model_len"):
        default_paths(model, ModelOptions(by_executor={"*": {"max_model_len": 1}}))
    with pytest.raises(DefinitionError, match="without LoRA adapters: remove lora"):
        default_paths(model, ModelOptions(lora="x"))


@pytest.mark.parametrize("pipeline", ["QwenImageEditPlusPipeline", None])
def test_another_pipeline_is_not_supported(tmp_path: Path, pipeline: str | None) -> None:
    with pytest.raises(DefinitionError, match=f"unsupported pipeline {pipeline} of .*: use one of QwenImagePipeline, "):
        default_paths(pipeline_directory(tmp_path, pipeline))


def test_whisper_has_a_transcription_path(tmp_path: Path) -> None:
    directory = model_directory(tmp_path, "WhisperForConditionalGeneration", "whisper")
    for model in (directory, "openai/whisper-large-v3-turbo", "distil-whisper/distil-large-v3.5"):
        assert default_paths(model) == {"transcribe": Transcribe(model_id=model)}


def vits_directory(path: Path, settings: object) -> str:
    return model_directory(path, "VitsModel", "vits", tokenizer_config__json=json.dumps(settings))


def test_vits_has_a_speech_path(tmp_path: Path) -> None:
    directory = vits_directory(tmp_path, {"phonemize": False, "is_uroman": False})
    for model in (directory, "facebook/mms-tts-eng", "facebook/mms-tts-uig-script_arabic"):
        assert default_paths(model) == {"speech": Speak(model_id=model)}


def test_the_options_of_a_speech_model_are_those_of_its_executor(tmp_path: Path) -> None:
    model = vits_directory(tmp_path, {"phonemize": False})

    options = ModelOptions(by_executor={"*": {"max_characters": 100}, "text_to_speech": {"gpus": 0}})

    expected = TextToSpeechOptions(max_characters=100, gpus=0)
    assert default_paths(model, options) == {"speech": Speak(model_id=model, options=expected)}
    with pytest.raises(DefinitionError, match="dtype"):
        default_paths(model, ModelOptions(by_executor={"*": {"dtype": "float32"}}))
    with pytest.raises(DefinitionError, match="without LoRA adapters: remove lora"):
        default_paths(model, ModelOptions(lora="x"))


@pytest.mark.parametrize(
    ("settings", "need"),
    [
        ({}, "phonemes of espeak (phonemize in tokenizer_config.json)"),
        ({"phonemize": True}, "phonemes of espeak"),
        ({"phonemize": False, "is_uroman": True}, "the transliteration of uroman (is_uroman in tokenizer_config.json)"),
    ],
)
def test_a_tokenizer_that_needs_another_program_is_named(tmp_path: Path, settings: object, need: str) -> None:
    with pytest.raises(DefinitionError, match=re.escape(f"needs {need}")):
        default_paths(vits_directory(tmp_path, settings))


def test_a_vits_without_its_tokenizer_is_incomplete(tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match=r"has no tokenizer_config\.json: download the model again"):
        default_paths(model_directory(tmp_path, "VitsModel"))


@pytest.mark.parametrize("model", ["gpt2", "Qwen/Qwen3-0.6B", "_/a.b-c"])
def test_a_hugging_face_id_is_assumed_to_be_a_language_model(model: str) -> None:
    assert planned_paths(default_paths(model), ()) == {"chat": Chat(model_id=model)}


@pytest.mark.parametrize("model", ["", "-a/b", "a/-b", "./a", "~/a", "a/b/c"])
def test_an_invalid_hugging_face_id_is_rejected(model: str) -> None:
    with pytest.raises(DefinitionError, match="is neither an absolute path nor a Hugging Face id"):
        default_paths(model)


def test_an_unsupported_architecture_is_named(tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match=r"unsupported architecture UNet2DConditionNet of .*: use a text model"):
        default_paths(model_directory(tmp_path, "UNet2DConditionNet"))


@pytest.mark.parametrize(
    "architecture",
    [
        *("SmolVLMForConditionalGeneration", "MolmoForCausalLM"),
        *("InternVLChatModel", "UltravoxModel", "MiniCPMV"),
    ],
)
def test_a_multimodal_model_is_served_whole_if_its_encoders_were_not_compared(
    tmp_path: Path, architecture: str
) -> None:
    model = model_directory(tmp_path, architecture)

    assert default_paths(model) == {"monolith": Mllm(model_id=model, encoder_modalities=())}


@pytest.mark.parametrize(("architecture", "modalities"), ENCODER_MODALITIES.items())
def test_the_encoders_of_an_architecture_can_run_apart(
    tmp_path: Path, architecture: str, modalities: tuple[Modality, ...]
) -> None:
    paths = default_paths(model_directory(tmp_path, architecture))

    joint = ["joint-e-l", "joint-e-el"] if modalities == MODALITIES else []
    transcribe = ["transcribe"] if architecture in TRANSCRIBERS else []
    assert [*paths] == ["monolith", "e-l", "e-el", *joint, *transcribe, "ep-d", "e-p-d", "e-pd"]
    encoders = [task.modalities for task in unit_tasks(paths["e-l"]) if isinstance(task, EncoderTask)]
    assert sum(encoders, ()) == (("image", "video", "audio") if joint else modalities)


@pytest.mark.parametrize(
    ("architecture", "model_type"),
    [
        *(("Qwen3ASRForConditionalGeneration", "qwen3_asr"), ("Gemma3nForConditionalGeneration", "gemma3n")),
        ("Qwen3OmniMoeForConditionalGeneration", "qwen3_omni_moe"),
    ],
)
def test_a_model_that_chats_about_speech_can_transcribe_it(tmp_path: Path, architecture: str, model_type: str) -> None:
    model = model_directory(tmp_path, architecture, model_type)
    options = ModelOptions(by_executor={"transcription": {"max_model_len": 4096}})

    paths = default_paths(model, options)

    assert next(iter(paths)) == "monolith"
    assert paths["transcribe"] == Transcribe(model_id=model, options=EngineOptions(max_model_len=4096))
    assert "transcribe" not in alternatives(paths, "monolith")


def test_a_model_that_only_transcribes_has_no_other_path(tmp_path: Path) -> None:
    model = model_directory(tmp_path, "CohereAsrForConditionalGeneration")

    assert default_paths(model) == {"transcribe": Transcribe(model_id=model)}


QWEN = ("Qwen2_5_VLForConditionalGeneration", "qwen2_5_vl")


@pytest.mark.parametrize(("architecture", "model_type"), [QWEN, ("LlavaForConditionalGeneration", "llava")])
def test_a_multimodal_model_has_a_path_for_each_encoder_placement(
    tmp_path: Path, architecture: str, model_type: str
) -> None:
    model = model_directory(tmp_path, architecture, model_type)

    paths = planned_paths(default_paths(model), ())

    assert list(paths) == ["monolith", "e-l", "e-el"]
    executors = {name: {unit.executor_spec().executor for unit in unit_tasks(path)} for name, path in paths.items()}
    assert executors == {"monolith": {"llm"}, "e-l": {"llm", "encoder"}, "e-el": {"llm", "encoder"}}


def test_the_hybrid_path_uses_the_executors_of_the_monolith(tmp_path: Path) -> None:
    paths = default_paths(model_directory(tmp_path, *QWEN))

    keys = {name: {unit.key for unit in unit_tasks(path)} for name, path in paths.items()}

    assert keys["monolith"] < keys["e-el"]
    assert len(keys["e-l"] & keys["e-el"]) == 1, "the encoder"


def test_an_audio_model_has_an_audio_encoder(tmp_path: Path) -> None:
    directory = model_directory(tmp_path, "Qwen2AudioForConditionalGeneration", "qwen2_audio")
    for model in (directory, "Qwen/Qwen2-Audio-7B-Instruct"):
        encoders = [unit for unit in unit_tasks(default_paths(model)["e-l"]) if isinstance(unit, EncoderTask)]

        assert [encoder.modality for encoder in encoders] == ["audio"]


OMNI = ("Qwen2_5OmniModel", "qwen2_5_omni")


@pytest.mark.parametrize("architecture", [OMNI, ("Qwen3OmniMoeForConditionalGeneration", "qwen3_omni_moe")])
def test_a_model_with_images_audio_and_videos_has_paths_with_joint_and_with_separate_encoders(
    tmp_path: Path, architecture: tuple[str, str]
) -> None:
    paths = planned_paths(default_paths(model_directory(tmp_path, *architecture)), ())

    encoders = {
        name: [unit.modalities for unit in unit_tasks(path) if isinstance(unit, EncoderTask)]
        for name, path in paths.items()
    }
    apart, together = [("image", "video"), ("audio",)], [("image", "audio", "video")]
    assert encoders == {"monolith": [], "e-l": apart, "e-el": apart, "joint-e-l": together, "joint-e-el": together}
    keys = {name: {unit.key for unit in unit_tasks(path)} for name, path in paths.items()}
    assert len(set().union(*keys.values())) == 5, "three encoders, the language model with and without encoders"


@pytest.mark.parametrize("model", ["Qwen/Qwen2.5-Omni-7B", "Qwen/Qwen3-Omni-30B-A3B-Instruct"])
def test_omni_models_are_recognized_by_their_ids(model: str) -> None:
    assert "joint-e-l" in default_paths(model)


def test_a_qwen3_omni_with_a_talker_has_paths_that_speak(tmp_path: Path) -> None:
    model = model_directory(tmp_path, "Qwen3OmniMoeForConditionalGeneration", "qwen3_omni_moe")
    config = Path(model) / "config.json"
    without = default_paths(model)
    config.write_text(json.dumps(json.loads(config.read_text()) | {"enable_audio_output": True}))
    given = {"llm": {"seed": 1}, "talker": {"max_tokens": 64}, "vocoder": {"gpus": 0}, "omni": {"max_frames": 9}}
    options = ModelOptions(by_executor=given)

    paths = default_paths(model, options)

    speech = SpeakingChat(
        model_id=model,
        options=EngineOptions(seed=1),
        talker_options=TalkerOptions(max_tokens=64),
        vocoder_options=VocoderOptions(gpus=0),
    )
    monolith = OmniChat(model_id=model, options=OmniOptions(max_frames=9))
    encoder, vocoder = (speech.model_copy(update={name: True}) for name in ("split_encoder", "split_vocoder"))
    speaking = {"speech": speech, "e-speech": encoder, "speech-split": vocoder, "speech-monolith": monolith}
    assert {name: path for name, path in paths.items() if name not in without} == speaking
    assert alternatives(paths, "speech") == speaking
    assert alternatives(paths, "e-l").keys() == without.keys() - {"transcribe"}
    with pytest.raises(
        DefinitionError, match=r"has no executor 'talker': choose from decode, encoder, llm, prefill, transcription, "
    ):
        default_paths("Qwen/Qwen3-Omni-30B-A3B-Thinking", options)


def test_all_paths_of_a_model_have_its_options_of_media(tmp_path: Path) -> None:
    options = MediaOptions(fps=1, max_pixels=5000)

    paths = default_paths(model_directory(tmp_path, *OMNI), ModelOptions(media=options))

    assert [getattr(path, "media_options", None) for path in paths.values()] == [options] * 8


@pytest.mark.parametrize(
    ("model", "options", "error"),
    [
        ("Qwen/Qwen3-0.6B", MediaOptions(fps=1), "media_options: .* receives no media in chats"),
        ("openai/whisper-tiny", MediaOptions(max_pixels=1), "media_options: .* receives no media in chats"),
        (
            "google/gemma-3-4b-it",
            MediaOptions(max_pixels=1, num_frames=1),
            r"media_options\.num_frames: .* not have this option",
        ),
        ("OpenGVLab/InternVL3-8B-hf", MediaOptions(max_pixels=1), r"\.max_pixels: .*: use fps, max_patches, min_p"),
        ("Qwen/Qwen2-Audio-7B-Instruct", MediaOptions(min_pixels=1), r"media_options\.min_pixels: .*: remove it"),
        (
            "Qwen/Qwen2-VL-2B-Instruct",
            MediaOptions(max_patches=1),
            r"media_options\.max_patches: .*: use fps, max_frames, ",
        ),
        (
            "llava-hf/llava-onevision-qwen2-7b-ov-hf",
            MediaOptions(max_pixels=1),
            r"\.max_pixels: .*: use fps, num_frames",
        ),
    ],
)
def test_options_of_media_that_a_model_does_not_have_are_rejected(
    model: str, options: MediaOptions, error: str
) -> None:
    with pytest.raises(DefinitionError, match=error):
        default_paths(model, ModelOptions(media=options))


def test_equal_sets_of_modalities_are_the_same_encoder() -> None:
    image = EncoderTask(model_id="m/m")
    both = EncoderTask(model_id="m/m", modality=("image", "audio"))

    assert EncoderTask(model_id="m/m", modality=("image",)) == image
    assert EncoderTask(model_id="m/m", modality=("audio", "image")).key == both.key != image.key
    assert EncoderTask.model_validate(both.executor_spec().config) == both
    with pytest.raises(ValueError, match="each one once"):
        EncoderTask(model_id="m/m", modality=("image", "image"))
    with pytest.raises(ValueError, match="at least one modality"):
        EncoderTask(model_id="m/m", modality=())


def test_a_model_of_a_known_type_needs_a_head_that_generates(tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match=r"unsupported architecture .* or a multimodal model of vLLM "):
        default_paths(model_directory(tmp_path, "Qwen2_5_VLForImageSegmentation", QWEN[1]))


@pytest.mark.parametrize("model", MULTIMODAL_IDS)
def test_multimodal_models_are_recognized_by_their_ids(model: str) -> None:
    assert "e-l" in default_paths(model)
