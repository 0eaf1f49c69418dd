"""Chats whose responses can be images."""

from __future__ import annotations

from cornserve.task import Task
from cornserve_tasklib.chat_request import ChatRequest
from cornserve_tasklib.chat_response import ChatResponse, Usage
from cornserve_tasklib.image_generation import DEFAULT_SIZE, ImageGenerationRequest, Size
from cornserve_tasklib.image_tasks import GenerateImages
from cornserve_tasklib.llm import Chat, Mllm
from cornserve_tasklib.messages import ChatMessage
from cornserve_tasklib.structured_outputs import StructuredOutputs

_DECISION = """\
{conversation}

Should the assistant answer or draw? Answer with one word."""

_DESCRIPTION = """\
{conversation}

Describe the picture that the user asks for in one sentence. Write nothing else."""

_DRAW, _ANSWER = "draw", "answer"
_MAX_DESCRIPTION_TOKENS = 128
_MAX_DECISION_TOKENS = 8
_MAX_PROMPT_CHARACTERS = 1000
_SEEDS = 2**62


class DrawingChat(Task[ChatRequest, ChatResponse]):
    """Lets the language model decide whether it answers with a text or with a picture, which an image model draws.

    The response to a request for a picture has a description as its text, and the image. Requests with tools, with a
    required format or for several choices get texts.
    """

    chat: Chat | Mllm
    """The language model."""
    drawer: GenerateImages
    """The image model."""
    size: Size = DEFAULT_SIZE
    """Width and height of the images in pixels."""

    def invoke(self, request: ChatRequest) -> ChatResponse:
        if not _can_be_drawn(request):
            return self.chat.invoke(request)
        conversation = _conversation(request)
        decision = self.chat.invoke(_decision_request(request, conversation))
        if decision.text != _DRAW:
            return self.chat.invoke(request)
        described = self.chat.invoke(_description_request(request, conversation))
        text = described.text.strip() or conversation[-_MAX_PROMPT_CHARACTERS:]
        drawn = self.drawer.invoke(
            ImageGenerationRequest(
                prompt=text, size=self.size, seed=None if request.seed is None else request.seed % _SEEDS
            )
        )
        usage = Usage.sum([decision.usage, described.usage, drawn.usage])
        return ChatResponse(text=text, images=drawn.images, finish_reason=described.finish_reason, usage=usage)


def _can_be_drawn(request: ChatRequest) -> bool:
    has_format = request.response_format is not None or request.structured_outputs is not None
    is_single = request.n == 1 and not request.continue_final_message
    has_logprobs = request.logprobs or request.prompt_logprobs is not None
    is_plain = request.tools is None and is_single and not has_logprobs
    return is_plain and not has_format and request.messages[-1].role == "user"


def _conversation(request: ChatRequest) -> str:
    return "\n".join(f"{message.role}: {text}" for message in request.messages for text in message.texts)


def _decision_request(request: ChatRequest, conversation: str) -> ChatRequest:
    question = ChatMessage(role="user", content=_DECISION.format(conversation=conversation))
    return ChatRequest(
        messages=[question],
        structured_outputs=StructuredOutputs(choice=[_DRAW, _ANSWER]),
        temperature=0,
        max_tokens=_MAX_DECISION_TOKENS,
        priority=request.priority,
        cache_salt=request.cache_salt,
    )


def _description_request(request: ChatRequest, conversation: str) -> ChatRequest:
    """Returns the request for the text of the image, with the sampling parameters of the user's request."""
    question = ChatMessage(role="user", content=_DESCRIPTION.format(conversation=conversation))
    limit = min(request.token_limit or _MAX_DESCRIPTION_TOKENS, _MAX_DESCRIPTION_TOKENS)
    limits = {"max_tokens": limit, "max_completion_tokens": None, "min_tokens": min(request.min_tokens, limit)}
    return request.model_copy(update={"messages": [question], **limits})
