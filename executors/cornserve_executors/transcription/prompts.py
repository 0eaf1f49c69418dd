"""Renders the prompts of Whisper: the features of a clip, and the tokens that select language and task."""

from __future__ import annotations

from typing import Any

from vllm import SamplingParams
from vllm.config.speech_to_text import SpeechToTextParams
from vllm.model_executor.model_loader import get_model_cls
from vllm.renderers import BaseRenderer
from vllm.renderers.inputs.preprocess import parse_enc_dec_prompt

from cornserve_executors.base import ExecutorStartError, InvalidRequestError
from cornserve_executors.transcription.speech import Samples
from cornserve_tasklib.transcription import TranscriptionRequest


class SpeechPrompts:
    """Renders prompts with the functions that the model's class in vLLM provides.

    Raises `ExecutorStartError` if the model does not recognize speech as Whisper does.
    """

    def __init__(self, model_config: Any, renderer: BaseRenderer) -> None:
        self.model = get_model_cls(model_config)
        if not getattr(self.model, "supports_explicit_language_detection", False):
            raise ExecutorStartError(f"{model_config.model} is not a Whisper: deploy another model")
        self.config = self.model.get_speech_to_text_config(model_config, "transcribe")
        self._model_config = model_config
        self._renderer = renderer
        self._vocabulary: dict[str, int] = renderer.tokenizer.get_vocab()

    def check_language(self, language: str | None) -> None:
        """Raises `InvalidRequestError` for a language that the model does not know."""
        if language is not None and f"<|{language}|>" not in self._vocabulary:
            raise InvalidRequestError(
                f"language: the model does not know {language!r}: give a code such as 'en', or omit it"
            )

    async def clip(self, samples: Samples, request: TranscriptionRequest, language: str) -> Any:
        """Returns the engine's input for a clip."""
        params = SpeechToTextParams(
            audio=samples,
            stt_config=self.config,
            model_config=self._model_config,
            language=language,
            task_type=request.task,
            request_prompt=request.prompt,
        )
        prompt = parse_enc_dec_prompt(self.model.get_generation_prompt(params))
        if request.segments:
            decoder: Any = prompt["decoder_prompt"]
            decoder["prompt"] = decoder["prompt"].replace("<|notimestamps|>", "<|0.00|>")
        return await self._render(prompt)

    async def language_detection(self, samples: Samples) -> tuple[Any, SamplingParams]:
        """Returns the engine's input to which the model responds with the token of the language."""
        tokens = [
            token
            for language in self.model.supported_languages
            if (token := self._vocabulary.get(f"<|{language}|>")) is not None
        ]
        prompt = parse_enc_dec_prompt(self.model.get_language_detection_prompt(samples, self.config))
        return await self._render(prompt), SamplingParams(max_tokens=1, temperature=0, allowed_token_ids=tokens)

    def parse_language(self, token: int) -> str:
        """Returns the language of the detected token."""
        language: str = self.model.parse_language_detection_output([token], self._renderer.tokenizer)
        return language

    async def _render(self, prompt: Any) -> Any:
        (rendered,) = await self._renderer.render_cmpl_async([prompt])
        return rendered
