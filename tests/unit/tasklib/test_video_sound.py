"""The sound of a video in the input of a language model."""

from __future__ import annotations

from cornserve.task.references import ReferenceEncoder
from cornserve_tasklib import LLMTask, Mllm
from tests.integration.multimodal.media_chats import media_chat
from tests.video import as_video, with_sound

FILM = media_chat(with_sound(as_video(4, 64, 64, 2, sound="aac")))


def test_the_file_of_a_video_and_its_sound_is_sent_once() -> None:
    task, encoder = LLMTask(model_id="m/m"), ReferenceEncoder()

    body = task.encode(FILM, encoder)

    assert encoder.inputs == [FILM.media[0].data]
    assert task.decode(body, encoder.inputs) == FILM


def test_video_and_sound_are_encoded_by_the_encoders_of_their_modalities() -> None:
    path = Mllm(model_id="m/m", split_encoder=True, with_enc=False, encoder_modalities=("image", "audio", "video"))

    assert [encoder.modality for encoder in path.encoders] == [("image", "video"), "audio"]
    assert [medium.modality for medium in FILM.media] == ["video", "audio"]
    assert isinstance(path.llm, LLMTask)
    assert path.llm.components(FILM) == {"llm", "video_encoder", "audio_encoder"}
