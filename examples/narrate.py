"""Answers a question in a sentence, and speaks the answer.

    cornserve deploy examples/narrate.py
    cornserve speak narrate "Why is the sky blue?" --save sky.wav

The app is served at `/v1/audio/speech`, so clients that speak a text can call it without changes.
"""

from cornserve import App, Task
from cornserve_tasklib import ChatRequest, LLMTask, SpeechRequest, SpeechResponse, TextToSpeechTask

WRITER = "Qwen/Qwen3-4B-Instruct-2507"
"""The Hugging Face id, or the absolute path, of a language model."""

SPEAKER = "facebook/mms-tts-eng"
"""The Hugging Face id, or the absolute path, of a VITS model."""


class Narrate(Task[SpeechRequest, SpeechResponse]):
    writer_id: str
    speaker_id: str

    def post_init(self) -> None:
        self.writer = LLMTask(model_id=self.writer_id)
        self.speaker = TextToSpeechTask(model_id=self.speaker_id)

    def invoke(self, request: SpeechRequest) -> SpeechResponse:
        question = f"{request.input}\n\nAnswer in one sentence. Write numbers as words."
        answer = self.writer.invoke(ChatRequest.ask(question, max_tokens=100))
        return self.speaker.invoke(request.model_copy(update={"input": answer.text}))


app = App(name="narrate", paths=[Narrate(writer_id=WRITER, speaker_id=SPEAKER)])
