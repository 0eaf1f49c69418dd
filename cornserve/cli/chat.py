"""`cornserve chat`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from cornserve.cli.audio_format import FORMATS
from cornserve.cli.chat_images import ChatImages
from cornserve.cli.chat_speech import ChatSpeech
from cornserve.cli.console import CliError, expanded, print_error, print_json, print_model_text, stderr, stdout
from cornserve.cli.gateway import check_serves, open_client
from cornserve.cli.media_options import MediaIoKwargs, MmProcessorKwargs, media_fields
from cornserve.cli.options import AppName, Json, Url
from cornserve_plan.bounded_file import read_bounded_stream

if TYPE_CHECKING:
    from cornserve.client import Client

Message = Mapping[str, Any]

MAX_QUESTION_MIB = 8
"""The maximum size of a question on standard input, that of a request's text by default."""

HELP = "/reset: clear the conversation; /quit or Ctrl-D: exit; Ctrl-C: stop a response."


def chat(
    ctx: typer.Context,
    app: AppName,
    question: Annotated[
        str | None,
        typer.Argument(metavar="[QUESTION]", help="Answer this question and exit. By default, start a conversation."),
    ] = None,
    system: Annotated[str | None, typer.Option("--system", help="System message.")] = None,
    max_tokens: Annotated[
        int | None, typer.Option("--max-tokens", min=1, help="Maximum number of tokens in a response.")
    ] = None,
    temperature: Annotated[
        float | None, typer.Option("--temperature", min=0, max=2, help="Sampling temperature. 0: greedy.")
    ] = None,
    image: Annotated[
        list[str] | None,
        typer.Option("--image", metavar="FILE | URL", help="Image for the first question. Can be repeated."),
    ] = None,
    audio: Annotated[
        list[str] | None,
        typer.Option("--audio", metavar="FILE | URL", help="Audio for the first question. Can be repeated."),
    ] = None,
    video: Annotated[
        list[str] | None,
        typer.Option("--video", metavar="FILE | URL", help="Video for the first question. Can be repeated."),
    ] = None,
    save: Annotated[
        Path | None,
        typer.Option(
            "--save",
            metavar="FILE",
            help="Save the images of an app that draws, as FILE.png, of which the second one gets the number 2. With "
            f"--voice, save the speech: {', '.join(FORMATS)}.",
        ),
    ] = None,
    voice: Annotated[
        str | None,
        typer.Option("--voice", help="Speak the answer to QUESTION with this voice of the model."),
    ] = None,
    media_io_kwargs: MediaIoKwargs = None,
    mm_processor_kwargs: MmProcessorKwargs = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """Chat with an app. Without a terminal, the question is read from standard input."""

    if question is None and not sys.stdin.isatty():
        question = _read_stdin().strip()
    if voice is not None and not question:
        raise CliError("--voice needs a question: give it as an argument or on standard input")
    media = [_media_part("image", argument) for argument in image or []]
    media += [_media_part("audio", argument) for argument in audio or []]
    media += [_media_part("video", argument) for argument in video or []]
    options: dict[str, Any] = {"max_tokens": max_tokens, "temperature": temperature}
    options |= media_fields(media_io_kwargs, mm_processor_kwargs)
    with open_client(ctx, url) as client:
        given = {name: value for name, value in options.items() if value is not None}
        images = ChatImages(save if voice is None else None)
        session = ChatSession(client, app, system, given, images, media)
        if question and voice is not None:
            session.speak(question, ChatSpeech(voice, save or Path("speech.wav")), json)
        elif question:
            session.answer(question, json)
        elif question is None and not json:
            check_serves(client, app)
            session.run()
        else:
            raise CliError("the question is missing: give it as an argument or on standard input")


class ChatSession:
    """A conversation with an app.

    Args:
        images: receives the images of responses.
        media: image, audio and video parts of the first question.
    """

    def __init__(
        self,
        client: Client,
        app: str,
        system: str | None,
        options: dict[str, Any],
        images: ChatImages,
        media: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        self._client = client
        self._app = app
        self._start = [] if system is None else [_message("system", system)]
        self._options = options
        self._images = images
        self._media = list(media)
        self._messages = list(self._start)

    def answer(self, question: str, json: bool) -> None:
        """Prints the response to a single question."""
        messages = [*self._messages, self._user_message(question)]
        if json:
            print_json(self._client.complete(self._app, messages, **self._options))
            return
        for _ in self._written(messages):
            pass

    def speak(self, question: str, speech: ChatSpeech, json: bool) -> None:
        """Saves the spoken response to a single question."""
        messages = [*self._messages, self._user_message(question)]
        speech.answer(self._client, self._app, messages, self._options, as_json=json)

    def run(self) -> None:
        """Answers questions until the user exits."""
        from cornserve.client import ClientError

        with suppress(ImportError):  # Python may be built without it.
            import readline  # noqa: F401  adds editing and history to `input`

        stderr().print(f"Chat with {self._app}. {HELP}", style="dim", markup=False)
        while (question := _read_question()) is not None:
            match question.strip():
                case "":
                    continue
                case "/quit" | "/exit":
                    return
                case "/reset":
                    self._messages = list(self._start)
                case "/help":
                    stderr().print(HELP, style="dim", markup=False)
                case _:
                    try:
                        self._answer_in_context(question)
                    except (ClientError, CliError) as error:  # The conversation goes on.
                        print_error(str(error))

    def _answer_in_context(self, question: str) -> None:
        """Adds a question and its response to the conversation, unless the request fails. Ctrl-C cuts the response."""
        messages = [*self._messages, self._user_message(question)]
        chunks: list[str] = []
        try:
            chunks.extend(self._written(messages))
        except KeyboardInterrupt:
            typer.echo(" …")
        typer.echo()
        self._messages = [*messages, _message("assistant", "".join(chunks))]
        self._media = []  # The messages already contain the media.

    def _written(self, messages: Sequence[Message]) -> Iterator[str]:
        """Writes the response and its images, and yields its chunks of text."""
        images: list[str] = []
        for delta in self._client.chat_deltas(self._app, messages, **self._options):
            print_model_text(delta.text, end="")
            images.extend(delta.images)
            yield delta.text
        typer.echo()
        self._images.add(images)

    def _user_message(self, text: str) -> Message:
        return _message("user", [*self._media, {"type": "text", "text": text}] if self._media else text)


def _read_question() -> str | None:
    try:
        return input("> ")
    except (EOFError, KeyboardInterrupt):
        stdout().print()
        return None


def _read_stdin() -> str:
    try:
        return read_bounded_stream(sys.stdin.buffer, MAX_QUESTION_MIB, "standard input").decode()
    except (OSError, UnicodeDecodeError) as error:
        raise CliError(f"cannot read standard input: {getattr(error, 'strerror', None) or error}") from error


def _media_part(modality: Literal["image", "audio", "video"], argument: str) -> Mapping[str, Any]:
    from cornserve.client import audio_part, image_part, video_part

    create = {"image": image_part, "audio": audio_part, "video": video_part}
    try:
        return create[modality](argument if _is_url(argument) else expanded(argument))
    except OSError as error:
        raise CliError(f"cannot send the {modality} {argument[:200]!r}: {error.strerror or error}") from error


def _is_url(argument: str) -> bool:
    return argument.startswith(("http://", "https://", "data:"))


def _message(role: str, content: str | list[Mapping[str, Any]]) -> Message:
    return {"role": role, "content": content}
