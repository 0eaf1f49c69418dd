"""`/tokenize` and `/detokenize`, with the fields of vLLM's server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Literal

from fastapi import Request
from pydantic import Discriminator, RootModel, Tag
from pydantic_core import to_json
from typing_extensions import TypedDict

from cornserve.app.media_slots import MediaSlot, find_media_slots
from cornserve.app.response_readers import PROMPT, ReadPrompt
from cornserve.app.unused_fields import UnusedFieldsError, tracked
from cornserve.gateway.context import Context
from cornserve.gateway.endpoints.openai.chat import ChatCompletionRequest, run_chat
from cornserve.gateway.endpoints.openai.common_fields import OpenAIRequest, Text, check_app
from cornserve.gateway.endpoints.read_request import read_fields
from cornserve.gateway.endpoints.request_handler import RequestHandler, SendResponse
from cornserve.gateway.errors import ApiError
from cornserve.gateway.request.session import Session
from cornserve_tasklib.chat_request import ChatRequest
from cornserve_tasklib.completion import CompletionRequest
from cornserve_tasklib.sampling_fields import STRICT, Tokens


class TokenizeChatRequest(ChatCompletionRequest):
    """A chat. Fields that do not concern the prompt are accepted and not used."""

    add_special_tokens: Literal[False] = False
    """Must be `false`: the chat template contains the special tokens."""
    return_token_strs: Literal[False] = False
    """Must be `false`."""

    @property
    def for_app(self) -> ChatRequest:
        return tracked(ChatRequest, ChatRequest(messages=self.messages, **self._prompt_fields), prompt_only=True)

    @property
    def _prompt_fields(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.model_fields_set & _PROMPT_FIELDS}


_PROMPT_FIELDS = {
    *("tools", "tool_choice", "reasoning_effort", "chat_template_kwargs"),
    *("add_generation_prompt", "continue_final_message", "mm_processor_kwargs", "media_io_kwargs"),
}


class TokenizeTextRequest(OpenAIRequest):
    model_config = STRICT

    prompt: Text
    add_special_tokens: bool = True
    """Whether the tokenizer adds the model's special tokens."""
    return_token_strs: Literal[False] = False
    """Must be `false`."""

    @property
    def for_app(self) -> CompletionRequest:
        return _prompt_request(self.prompt, add_special_tokens=self.add_special_tokens)


def _kind(given: object) -> str:
    is_chat = isinstance(given, TokenizeChatRequest) or (isinstance(given, dict) and "messages" in given)
    return "given:chat" if is_chat else "given:text"


class TokenizeRequest(
    RootModel[
        Annotated[
            Annotated[TokenizeChatRequest, Tag("given:chat")] | Annotated[TokenizeTextRequest, Tag("given:text")],
            Discriminator(_kind),
        ]
    ]
):
    """A text or a chat."""


class DetokenizeRequest(OpenAIRequest):
    model_config = STRICT

    tokens: Tokens


class TokenList(TypedDict):
    count: int
    max_model_len: int | None
    tokens: list[int]


class DetokenizedText(TypedDict):
    prompt: str


async def tokenize(request: Request, context: Context) -> SendResponse:
    """Returns the tokens of the prompt that the model would read. Nothing is generated."""
    body = (await read_fields(request, TokenizeRequest, _media_of)).root
    handler = await RequestHandler.create(context, body.model, request, type(body))
    is_chat = isinstance(body, TokenizeChatRequest)
    check_app(handler.served_app, body.model, "chat" if is_chat else "completion", "/tokenize")
    handler.set_media(find_media_slots(body))

    async def respond(session: Session) -> bytes:
        read = await _run(session, body.for_app, body.model)
        length = context.replicas.max_model_len(handler.served_app.route.group_keys)
        tokens: TokenList = {"count": len(read.token_ids), "max_model_len": length, "tokens": read.token_ids}
        return to_json(tokens)

    return await handler.respond(respond)


async def detokenize(request: Request, context: Context) -> SendResponse:
    """Returns the text of tokens."""
    body = await read_fields(request, DetokenizeRequest)
    handler = await RequestHandler.create(context, body.model, request, type(body))
    check_app(handler.served_app, body.model, "completion", "/detokenize")
    handler.set_field_names(lambda text: text.replace("prompt", "tokens", 1) if text.startswith("prompt") else text)

    async def respond(session: Session) -> bytes:
        read = await _run(session, _prompt_request(body.tokens), body.model)
        text: DetokenizedText = {"prompt": read.text}
        return to_json(text)

    return await handler.respond(respond)


def _media_of(body: TokenizeRequest) -> list[MediaSlot]:
    return find_media_slots(body.root)


def _prompt_request(prompt: str | list[int], *, add_special_tokens: bool = True) -> CompletionRequest:
    request = CompletionRequest(prompt=prompt, max_tokens=0, echo=True, add_special_tokens=add_special_tokens)
    return tracked(CompletionRequest, request, prompt_only=True)


async def _run(session: Session, request: ChatRequest | CompletionRequest, app: str) -> ReadPrompt:
    """Returns the prompt. Raises an `ApiError` (400) if the app does not return it."""
    with _refusing_own_code(app):
        read = await session.run(request, PROMPT)
    if read is None:
        raise _no_prompt(app)
    return read


async def count_prompt_tokens(session: Session, app: str, chat: ChatRequest) -> int:
    """Returns the tokens of a prompt. Raises an `ApiError` (400) if the app does not pass it on to a model.

    Args:
        chat: tracked, and with `prompt_only`.
    """
    with _refusing_own_code(app):
        response, _ = await run_chat(session, chat)
    return response.usage.prompt_tokens


@contextmanager
def _refusing_own_code(app: str) -> Iterator[None]:
    """Raises an `ApiError` (400) if the app does not pass its request on to a model."""
    try:
        yield
    except UnusedFieldsError as error:
        if "prompt_only" not in error.fields:
            raise
        raise _no_prompt(app) from None


def _no_prompt(app: str) -> ApiError:
    message = f"the app {app!r} does not return the tokens of its prompt: use the app of the model that it calls"
    return ApiError(400, message, param="model")
