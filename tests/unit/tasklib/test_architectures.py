"""Config files of published models: each has its paths, or a refusal with its name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cornserve.task.errors import DefinitionError
from cornserve_tasklib.model_families import default_paths
from cornserve_tasklib.model_options import ModelOptions

CHAT, WHOLE = {"chat", "p-d", "pd"}, {"monolith"}
APART = {"monolith", "e-l", "e-el", "ep-d", "e-p-d", "e-pd"}
JOINT = APART | {"joint-e-l", "joint-e-el"}
CODE = {"auto_map": {"AutoConfig": "configuration.Config"}}

SERVED: dict[tuple[str, str], set[str]] = {
    # Texts.
    ("LlamaForCausalLM", "llama"): CHAT,
    ("Qwen3MoeForCausalLM", "qwen3_moe"): CHAT,
    ("DeepseekV3ForCausalLM", "deepseek_v3"): CHAT,
    ("GptOssForCausalLM", "gpt_oss"): CHAT,
    ("MambaForCausalLM", "mamba"): {"chat"},
    ("Glm4MoeForCausalLM", "glm4_moe"): CHAT,
    ("BertModel", "bert"): {"embed"},
    ("XLMRobertaModel", "xlm-roberta"): {"embed"},
    ("Qwen3Model", "qwen3"): {"embed"},
    ("GPT2Model", "gpt2"): {"embed"},
    ("BertForSequenceClassification", "bert"): {"classify"},
    ("FalconForSequenceClassification", "falcon"): {"classify"},
    ("DiffLlamaForCausalLM", "diffllama"): CHAT,
    # Images, videos and audio, with encoders apart.
    ("Qwen2VLForConditionalGeneration", "qwen2_vl"): APART,
    ("Qwen2_5_VLForConditionalGeneration", "qwen2_5_vl"): APART,
    ("Qwen3VLForConditionalGeneration", "qwen3_vl"): APART,
    ("Gemma3ForConditionalGeneration", "gemma3"): APART,
    ("InternVLForConditionalGeneration", "internvl"): APART,
    ("LlavaForConditionalGeneration", "llava"): APART,
    ("Mistral3ForConditionalGeneration", "mistral3"): APART,
    ("LlavaOnevisionForConditionalGeneration", "llava_onevision"): APART,
    ("Qwen2AudioForConditionalGeneration", "qwen2_audio"): APART,
    ("Qwen2_5OmniModel", "qwen2_5_omni"): JOINT,
    ("Qwen3VLMoeForConditionalGeneration", "qwen3_vl_moe"): APART,
    ("Glm4vForConditionalGeneration", "glm4v"): APART,
    ("Glm4vMoeForConditionalGeneration", "glm4v_moe"): APART,
    ("Llama4ForConditionalGeneration", "llama4"): APART,
    ("Idefics3ForConditionalGeneration", "idefics3"): APART,
    ("LlavaNextForConditionalGeneration", "llava_next"): APART,
    ("AriaForConditionalGeneration", "aria"): APART,
    ("PaliGemmaForConditionalGeneration", "paligemma"): APART,
    # Whole.
    ("Qwen3_5ForConditionalGeneration", "qwen3_5"): WHOLE,
    ("Qwen3_5MoeForConditionalGeneration", "qwen3_5_moe"): WHOLE,
    ("Gemma3nForConditionalGeneration", "gemma3n"): WHOLE | {"transcribe"},
    ("Gemma4ForConditionalGeneration", "gemma4"): WHOLE,
    ("SmolVLMForConditionalGeneration", "smolvlm"): WHOLE,
    ("GraniteSpeechForConditionalGeneration", "granite_speech"): WHOLE | {"transcribe"},
    ("VoxtralForConditionalGeneration", "voxtral"): WHOLE | {"transcribe"},
    ("Lfm2VlForConditionalGeneration", "lfm2_vl"): WHOLE,
    ("UltravoxModel", "ultravox"): WHOLE,
    ("DeepseekOCRForCausalLM", "deepseek_vl_v2"): WHOLE,
    # Speech.
    ("WhisperForConditionalGeneration", "whisper"): {"transcribe"},
    ("Qwen3ASRForConditionalGeneration", "qwen3_asr"): APART | {"transcribe"},
    ("GlmAsrForConditionalGeneration", "glmasr"): APART | {"transcribe"},
    ("VitsModel", "vits"): {"speech"},
}

WITH_CODE = [
    ("MiniCPMV", "minicpmv_custom"),
    ("KimiVLForConditionalGeneration", "kimi_vl_custom"),
    ("Phi4MMForCausalLM", "phi4mm_custom"),
    ("MolmoForCausalLM", "molmo_custom"),
    ("InternVLChatModel", "internvl_custom"),
]

REFUSED = [
    ("BarkModel", "bark"),
    ("CsmForConditionalGeneration", "csm"),
    ("DiaForConditionalGeneration", "dia"),
    ("HiggsAudioModel", "higgs_audio"),
    ("KokoroModel", "kokoro"),
    ("CosyVoice2Model", "cosyvoice2"),
    ("T5ForConditionalGeneration", "t5"),
    ("MusicgenForConditionalGeneration", "musicgen"),
    ("EncodecModel", "encodec"),
    ("DetrForObjectDetection", "detr"),
    ("ViTForImageClassification", "vit"),
    ("Wav2Vec2ForCTC", "wav2vec2"),
    ("BertForTokenClassification", "bert"),
    ("Wav2Vec2ForSequenceClassification", "wav2vec2"),
    ("MarianMTModel", "marian"),
    ("XLNetLMHeadModel", "xlnet"),
    ("MPNetModel", "mpnet"),
    ("DebertaV2ForSequenceClassification", "deberta-v2"),
    ("GPTNeoForCausalLM", "gpt_neo"),
    ("InventedForCausalLM", "invented"),
    ("ColQwen3", "colqwen3"),
]


def directory(path: Path, architecture: str, model_type: str, **fields: Any) -> str:
    config = {"architectures": [architecture], "model_type": model_type, **fields}
    (path / "config.json").write_text(json.dumps(config))
    (path / "tokenizer_config.json").write_text('{"phonemize": false}')
    return str(path)


@pytest.mark.parametrize(("architecture", "model_type"), SERVED)
def test_an_architecture_has_its_paths(tmp_path: Path, architecture: str, model_type: str) -> None:
    assert default_paths(directory(tmp_path, architecture, model_type)).keys() == SERVED[architecture, model_type]


@pytest.mark.parametrize(("architecture", "model_type"), WITH_CODE)
def test_code_of_a_repository_runs_only_if_it_is_trusted(tmp_path: Path, architecture: str, model_type: str) -> None:
    model = directory(tmp_path, architecture, model_type, **CODE)
    reason = rf"{model} \({architecture}\) needs Python code of its repository, .*--trust-remote-code"

    with pytest.raises(DefinitionError, match=reason):
        default_paths(model)
    assert default_paths(model, ModelOptions(by_executor={"*": {"trust_remote_code": True}}))


def test_code_that_transformers_has_by_now_needs_no_trust(tmp_path: Path) -> None:
    assert default_paths(directory(tmp_path, "Phi3ForCausalLM", "phi3", **CODE)).keys() == CHAT


@pytest.mark.parametrize(("architecture", "model_type"), REFUSED)
def test_another_architecture_is_refused_by_its_name(tmp_path: Path, architecture: str, model_type: str) -> None:
    with pytest.raises(DefinitionError, match=architecture):
        default_paths(directory(tmp_path, architecture, model_type))
