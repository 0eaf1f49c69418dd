"""Transcribes a spoken question and answers it with a language model that only reads text.

cornserve deploy examples/answer_speech.py
cornserve chat answer-speech "Answer in one sentence." --audio question.wav
"""

from cornserve import App, Task
from cornserve_tasklib import (
    Audio,
    ChatMessage,
    ChatRequest,
    ChatResponse,
    LLMTask,
    TranscriptionRequest,
    TranscriptionTask,
)

LISTENER = "openai/whisper-large-v3-turbo"
"""The Hugging Face id, or the absolute path, of a Whisper model."""

WRITER = "Qwen/Qwen3-4B-Instruct-2507"
"""The Hugging Face id, or the absolute path, of a language model."""


class AnswerSpeech(Task[ChatRequest, ChatResponse]):
    listener_id: str
    writer_id: str

    def post_init(self) -> None:
        self.listener = TranscriptionTask(model_id=self.listener_id)
        self.writer = LLMTask(model_id=self.writer_id)

    def invoke(self, request: ChatRequest) -> ChatResponse:
        recordings = [medium for medium in request.media if isinstance(medium, Audio)]
        transcripts = [self.listener.invoke(TranscriptionRequest(audio=recording)) for recording in recordings]
        written = [text for message in request.messages for text in message.texts]
        question = "\n".join([*(transcript.text for transcript in transcripts), *written])
        message = ChatMessage(role="user", content=question)
        return self.writer.invoke(request.model_copy(update={"messages": [message]}))


app = App(name="answer-speech", paths=[AnswerSpeech(listener_id=LISTENER, writer_id=WRITER)])
