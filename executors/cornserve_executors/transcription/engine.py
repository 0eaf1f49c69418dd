"""Transcribes speech with vLLM."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing

from vllm import SamplingParams
from vllm.entrypoints.serve.utils.api_utils import get_max_tokens
from vllm.entrypoints.speech_to_text.base.serving import asr_inter_chunk_separator
from vllm.entrypoints.speech_to_text.transcription.protocol import TranscriptionRequest as VllmRequest
from vllm.sampling_params import RequestOutputKind

from cornserve.concurrency import gather_all
from cornserve_executors.transcription.alignment_extension import AlignmentExtension
from cornserve_executors.transcription.clip_transcript import ClipTranscript
from cornserve_executors.transcription.prompts import SpeechPrompts
from cornserve_executors.transcription.segments import SegmentBuilder
from cornserve_executors.transcription.speech import Clips, SpeechDecoder
from cornserve_executors.transcription.words import WordAligner
from cornserve_executors.vllm import settings
from cornserve_executors.vllm.engine import VllmEngine, translate_errors
from cornserve_tasklib.chat_response import Usage
from cornserve_tasklib.transcription import (
    TranscriptionChunk,
    TranscriptionOptions,
    TranscriptionRequest,
    TranscriptionResponse,
    TranscriptionTask,
    TranscriptionWord,
)

SendChunk = Callable[[TranscriptionChunk], Awaitable[None]]

_SAMPLING = TranscriptionOptions.model_fields.keys() - {
    *("language", "to_language", "hotwords", "prompt", "max_completion_tokens")
}
"""The fields that vLLM's sampling parameters have, too."""


class TranscriptionEngine(VllmEngine):
    def __init__(self, config: TranscriptionTask) -> None:
        # The same audio rarely recurs. Models that also chat need no encoders of other media.
        media = {"limit_mm_per_prompt": {"image": 0, "video": 0}, "mm_processor_cache_gb": 0}
        extension = f"{AlignmentExtension.__module__}.{AlignmentExtension.__qualname__}"
        super().__init__(settings.engine_args(config) | media | {"worker_extension_cls": extension})
        self._model_config = self._vllm.model_config
        self._defaults = self._model_config.get_diff_sampling_param()
        self._prompts = SpeechPrompts(self._model_config, self._vllm.renderer)
        self._decoder = SpeechDecoder(self._prompts.config)
        self._aligner = WordAligner(self._vllm, self._vllm.renderer.tokenizer) if self._prompts.aligns_words else None

    async def transcribe(
        self, request: TranscriptionRequest, id: str, send: SendChunk | None = None
    ) -> TranscriptionResponse:
        """Transcribes all clips of the audio concurrently, and sends their chunks in order to `send`."""
        with translate_errors():
            self._prompts.check(request)
            language = request.language
            async with self._decoder.clips(request.audio, id) as clips:
                if language is None and self._prompts.detects_language:
                    language = await self._detect_language(clips, id)
                transcripts = await self._render(request, clips, language, streams=send is not None)
                seconds = clips.seconds
            sampling = self._sampling(request, streams=send is not None)
            works = [
                self._generate(transcript, sampling, f"{id}/{index}") for index, transcript in enumerate(transcripts)
            ]
            separator = asr_inter_chunk_separator(language, self._prompts.model.no_space_languages)
            if send is not None:
                works.append(_send_in_order(transcripts, separator, send))
            await gather_all(works)
            words = await self._words(request, transcripts, language or "")
        return TranscriptionResponse(
            text=separator.join([text for transcript in transcripts for text in transcript.texts]),
            language=language or "",
            seconds=seconds,
            segments=[segment for transcript in transcripts for segment in transcript.segments],
            words=words,
            usage=self._usage(transcripts, seconds),
        )

    async def _render(
        self, request: TranscriptionRequest, clips: Clips, language: str | None, *, streams: bool
    ) -> list[ClipTranscript]:
        """Renders one clip after the other, so that other requests take turns with the thread that does it."""
        tokenizer = self._vllm.renderer.tokenizer
        builder = SegmentBuilder(tokenizer, request.temperature) if request.segments else None
        return [
            ClipTranscript(
                await self._prompts.clip(samples, request, language),
                start,
                len(samples) / clips.sample_rate,
                self._prompts.text_cleaner(streams=streams and builder is None),
                builder,
            )
            for samples, start in zip(clips.samples, clips.starts, strict=True)
        ]

    async def _detect_language(self, clips: Clips, id: str) -> str:
        prompt, sampling = await self._prompts.language_detection(clips.samples[0])
        tokens: list[int] = []
        async with aclosing(self._vllm.generate(prompt, sampling, f"{id}/language")) as outputs:
            async for output in outputs:
                tokens += output.outputs[0].token_ids
        return self._prompts.parse_language(tokens[0])

    async def _generate(self, transcript: ClipTranscript, sampling: SamplingParams, id: str) -> None:
        async with aclosing(self._vllm.generate(transcript.prompt, sampling.clone(), id)) as outputs:
            async for output in outputs:
                transcript.add_output(output)

    async def _words(
        self, request: TranscriptionRequest, transcripts: Sequence[ClipTranscript], language: str
    ) -> list[TranscriptionWord]:
        if not request.words or self._aligner is None:
            return []
        found = [await self._aligner.words(transcript, request.task, language) for transcript in transcripts]
        return [word for words in found for word in words]

    def _sampling(self, request: TranscriptionRequest, *, streams: bool) -> SamplingParams:
        fields = request.model_dump(include=_SAMPLING & request.model_fields_set)
        max_tokens = get_max_tokens(self._model_config.max_model_len, request.max_completion_tokens, 0, self._defaults)
        sampling = VllmRequest.model_construct(**fields).to_sampling_params(max_tokens, self._defaults)
        sampling.output_kind = RequestOutputKind.FINAL_ONLY
        if request.segments:
            sampling.logprobs = 1
        elif streams:
            sampling.output_kind = RequestOutputKind.DELTA
        return sampling

    def _usage(self, transcripts: Sequence[ClipTranscript], seconds: float) -> Usage:
        prompts = self._prompts
        audio_tokens = prompts.model.get_num_audio_tokens(seconds, prompts.config, self._model_config) or 0
        return Usage(
            prompt_tokens=audio_tokens + sum(transcript.prompt_tokens for transcript in transcripts),
            completion_tokens=sum(transcript.completion_tokens for transcript in transcripts),
        )


async def _send_in_order(transcripts: Sequence[ClipTranscript], separator: str, send: SendChunk) -> None:
    for index, transcript in enumerate(transcripts):
        async for chunk in transcript.chunks(separator if index else ""):
            await send(chunk)
