"""Looks at a picture, makes the instruction of the user precise, and edits the picture by it.

    cornserve deploy examples/edit_picture.py
    cornserve imagine edit-picture "make it look like autumn" --image field.png --save autumn.png

The request goes to two models: the first one reads the picture, the second one draws.
"""

from cornserve import App, Task
from cornserve_tasklib import (
    ChatMessage,
    ChatRequest,
    EditImages,
    ImageEditRequest,
    ImageGenerationResponse,
    Mllm,
)
from cornserve_tasklib.media import MediaPart
from cornserve_tasklib.messages import TextPart

READER = "Qwen/Qwen2.5-VL-7B-Instruct"
"""The Hugging Face id, or the absolute path, of a model that reads images."""

EDITOR = "Qwen/Qwen-Image-Edit"
"""The Hugging Face id, or the absolute path, of a model that edits images."""

QUESTION = "A user edits this picture by an instruction: {}\n\nSay in one sentence which things change, and how."


class Edit(Task[ImageEditRequest, ImageGenerationResponse]):
    reader_id: str
    editor_id: str

    def post_init(self) -> None:
        self.reader = Mllm(model_id=self.reader_id)
        self.editor = EditImages(model_id=self.editor_id)

    def invoke(self, request: ImageEditRequest) -> ImageGenerationResponse:
        picture = MediaPart(type="media", media=request.image)
        question = TextPart(type="text", text=QUESTION.format(request.prompt))
        message = ChatMessage(role="user", content=[picture, question])
        details = self.reader.invoke(ChatRequest(messages=[message], max_tokens=80, temperature=0))
        prompt = f"{request.prompt}. {details.text}"
        return self.editor.invoke(request.model_copy(update={"prompt": prompt}))


app = App(name="edit-picture", paths=[Edit(reader_id=READER, editor_id=EDITOR)])
