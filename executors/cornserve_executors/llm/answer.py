"""An answer that grows by vLLM's outputs: many small ones when it is streamed, else one."""

from __future__ import annotations

from typing import Any

from vllm import RequestOutput

from cornserve_tasklib.chat import ChatChunk, ChatResponse, Usage


class Answer:
    def __init__(self) -> None:
        self._texts: list[str] = []
        self._token_ids: list[int] = []
        self._prompt_tokens = 0
        self._finish_reason: Any = None

    def add(self, output: RequestOutput) -> ChatChunk:
        """Takes the next output in, and returns what is new."""
        completion = output.outputs[0]
        self._texts.append(completion.text)
        self._token_ids.extend(completion.token_ids)
        self._prompt_tokens = len(output.prompt_token_ids)
        self._finish_reason = completion.finish_reason
        return ChatChunk(text=completion.text, token_ids=list(completion.token_ids))

    def response(self) -> ChatResponse:
        if self._finish_reason not in ("stop", "length"):
            raise RuntimeError(f"vLLM ended the generation with {self._finish_reason!r}")
        return ChatResponse(
            text="".join(self._texts),
            token_ids=self._token_ids,
            finish_reason=self._finish_reason,
            usage=Usage(prompt_tokens=self._prompt_tokens, completion_tokens=len(self._token_ids)),
        )
