"""Holds spoken conversations: the user talks or writes, and the model answers with text and speech.

    cornserve deploy examples/voice_assistant.py
    cornserve invoke voice-assistant '{"chat": {"messages": [{"role": "user", "content": "What is corn?"}]}}'

OpenAI's client receives the speech while the model generates it, if a streamed chat has `modalities=["text", "audio"]`.
Spoken questions are `input_audio` parts.
"""

from cornserve import App, Task
from cornserve_tasklib import ChatMessage, SpeakingChat, SpokenChatRequest, SpokenChatResponse

MODEL = "Qwen/Qwen3-Omni-30B-A3B-Instruct"
"""The Hugging Face id, or the absolute path, of a Qwen3-Omni. A Qwen2.5-Omni also needs `reads_states=True` below."""

STYLE = ChatMessage(role="system", content="You talk with a user. Answer in one or two sentences, without lists.")


class Assistant(Task[SpokenChatRequest, SpokenChatResponse]):
    model_id: str

    def post_init(self) -> None:
        self.speaker = SpeakingChat(model_id=self.model_id)

    def invoke(self, request: SpokenChatRequest) -> SpokenChatResponse:
        chat = request.chat.model_copy(update={"messages": [STYLE, *request.chat.messages]})
        return self.speaker.invoke(request.model_copy(update={"chat": chat}))


app = App(name="voice-assistant", paths=[Assistant(model_id=MODEL)])
