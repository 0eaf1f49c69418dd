"""Renders the prompts of speech recognition models: a clip's features, and tokens that select language and task."""

from __future__ import annotations

from typing import Any

from vllm import SamplingParams
from vllm.config.speech_to_text import SpeechToTextParams
from vllm.model_executor.model_loader import get_model_cls
from vllm.model_executor.models.interfaces import supports_transcription
from vllm.model_executor.models.whisper import WhisperForConditionalGeneration
from vllm.renderers import BaseRenderer
from vllm.renderers.inputs.preprocess import parse_enc_dec_prompt, parse_model_prompt

from cornserve_executors.base import ExecutorStartError, InvalidRequestError
from cornserve_executors.transcription.clip_transcript import CleanText
from cornserve_executors.transcription.speech import Samples
from cornserve_tasklib.transcription import TranscriptionRequest


class SpeechPrompts:
    """Renders prompts with the functions that the model's class in vLLM provides.

    Raises `ExecutorStartError` if the model does not recognize speech.
    """

    def __init__(self, model_config: Any, renderer: BaseRenderer) -> None:
        self.model = get_model_cls(model_config)
        if not supports_transcription(self.model):
            raise ExecutorStartError(f"{model_config.model} does not transcribe speech: deploy another model")
        self.config = self.model.get_speech_to_text_config(model_config, "transcribe")
        self._model_config = model_config
        self._renderer = renderer
        self._vocabulary: dict[str, int] = renderer.tokenizer.get_vocab()

    @property
    def aligns_words(self) -> bool:
        """Whether the attention of the model shows when a word was spoken."""
        return issubclass(self.model, WhisperForConditionalGeneration)

    @property
    def detects_language(self) -> bool:
        """Whether the prompt contains the language, which the model can detect beforehand."""
        return bool(self.model.supports_explicit_language_detection)

    def check(self, request: TranscriptionRequest) -> None:
        """Raises `InvalidRequestError` for languages, segments and translations that the model lacks."""
        if request.language is not None:
            self._check_language("language", request.language)
        if request.task == "translate":
            self._check_language("to_language", request.to_language)
        has_timestamps = self.model.supports_segment_timestamp and self._model_config.is_encoder_decoder
        if request.segments and not has_timestamps:
            raise InvalidRequestError("response_format: the model writes no timestamps: use json or text")
        if request.words and not self.aligns_words:
            raise InvalidRequestError("timestamp_granularities[]: the model has no times of words: remove 'word'")
        if request.task == "translate" and self.detects_language and request.to_language != "en":
            raise InvalidRequestError(
                f"to_language: the model does not translate to {request.to_language!r}: use 'en', or omit it"
            )

    def _check_language(self, field: str, language: str) -> None:
        if self.detects_language:
            known = f"<|{language}|>" in self._vocabulary
        else:
            known = language in self.model.supported_languages or language in self.model.get_other_languages()
        if not known:
            raise InvalidRequestError(
                f"{field}: the model does not know {language!r}: give a code such as 'en', or omit it"
            )

    async def clip(self, samples: Samples, request: TranscriptionRequest, language: str | None) -> Any:
        """Returns the engine's input for a clip. Raises `InvalidRequestError` for a task that the model lacks."""
        params = SpeechToTextParams(
            audio=samples,
            stt_config=self.config,
            model_config=self._model_config,
            language=language,
            task_type=request.task,
            request_prompt=request.prompt,
            to_language=request.to_language if request.task == "translate" else None,
            hotwords=request.hotwords,
        )
        try:
            prompt = self.model.get_generation_prompt(params)
        except ValueError as error:
            raise InvalidRequestError(str(error)) from error
        if not request.segments:
            return await self._render(parse_model_prompt(self._model_config, prompt))
        timed = parse_enc_dec_prompt(prompt)
        decoder: Any = timed["decoder_prompt"]
        decoder["prompt"] = decoder["prompt"].replace("<|notimestamps|>", "<|0.00|>")
        return await self._render(timed)

    def text_cleaner(self, *, streams: bool) -> CleanText:
        """Returns the function that removes the model's markup from the text of one clip.

        Args:
            streams: whether it receives the parts of the text one after the other.
        """
        if streams:
            process: CleanText = self.model.get_streaming_post_processor_cls()().process_delta
            return process
        return lambda text, finished: self.model.post_process_output(text)

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
