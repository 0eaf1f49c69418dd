"""Describes several pictures concurrently, and answers a question about the pictures and their descriptions.

    cornserve deploy examples/compare_pictures.py
    cornserve chat compare-pictures "What has changed?" --image before.jpg --image after.jpg

The encoder of the model runs in separate executors, which encode the pictures of all requests in batches.
"""

from cornserve import App, Task
from cornserve_tasklib import ChatMessage, ChatRequest, ChatResponse, Image, Mllm
from cornserve_tasklib.media import MediaPart
from cornserve_tasklib.messages import TextPart

MODEL = "Qwen/Qwen2.5-VL-7B-Instruct"
"""The Hugging Face id, or the absolute path, of a model that reads images."""

DESCRIBE = TextPart(type="text", text="Describe this picture in two sentences.")


class Compare(Task[ChatRequest, ChatResponse]):
    model_id: str

    def post_init(self) -> None:
        self.model = Mllm(model_id=self.model_id, split_encoder=True, with_enc=False)

    def invoke(self, request: ChatRequest) -> ChatResponse:
        pictures = [part for part in request.media_parts if isinstance(part.media, Image)]
        if len(pictures) < 2:
            return self.model.invoke(request)
        answers = [self.describe(picture) for picture in pictures]  # concurrent: no text is read yet
        notes = "\n".join(f"Picture {number}: {answer.text}" for number, answer in enumerate(answers, 1))
        system = ChatMessage(role="system", content=f"These descriptions may help you.\n{notes}")
        return self.model.invoke(request.model_copy(update={"messages": [system, *request.messages]}))

    def describe(self, picture: MediaPart) -> ChatResponse:
        question = ChatMessage(role="user", content=[picture, DESCRIBE])
        return self.model.invoke(ChatRequest(messages=[question], max_tokens=80, temperature=0))


app = App(name="compare-pictures", paths=[Compare(model_id=MODEL)])
