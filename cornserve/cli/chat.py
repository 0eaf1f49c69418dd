"""`cornserve chat`."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cornserve.cli.console import Problem, emit, stderr, stdout
from cornserve.cli.options import AppName, Json, Url

if TYPE_CHECKING:
    from cornserve.client import Client

Message = Mapping[str, Any]

HELP = "/reset forgets the conversation, /quit or Ctrl-D leaves; Ctrl-C stops an answer."


def chat(
    app: AppName,
    question: Annotated[
        str | None, typer.Argument(metavar="[QUESTION]", help="Answer this and return. By default, a conversation.")
    ] = None,
    system: Annotated[str | None, typer.Option("--system", help="A system message at the start.")] = None,
    max_tokens: Annotated[int | None, typer.Option("--max-tokens", min=1, help="Of one answer.")] = None,
    temperature: Annotated[
        float | None, typer.Option("--temperature", min=0, max=2, help="0: always the likeliest word.")
    ] = None,
    image: Annotated[
        list[str] | None,
        typer.Option("--image", metavar="FILE | URL", help="An image for the first question; may be repeated."),
    ] = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """Talk to an app. A question on standard input is answered, too."""
    from cornserve.client import Client

    if question is None and not sys.stdin.isatty():
        question = sys.stdin.read().strip()
    images = [_image(one) for one in image or []]
    options = {"max_tokens": max_tokens, "temperature": temperature}
    with Client(url) as client:
        conversation = Conversation(client, app, system, {k: v for k, v in options.items() if v is not None}, images)
        if question:
            conversation.answer(question, json)
        elif question is None and not json:
            client.app(app)  # says at once if there is none
            conversation.go_on()
        else:
            raise Problem("there is no question: give it as an argument or on standard input")


class Conversation:
    """The messages so far, and how to go on.

    Args:
        images: parts that go with the first question.
    """

    def __init__(
        self,
        client: Client,
        app: str,
        system: str | None,
        options: dict[str, Any],
        images: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        self._client = client
        self._app = app
        self._start = [] if system is None else [_message("system", system)]
        self._options = options
        self._images = list(images)
        self._messages = list(self._start)

    def answer(self, question: str, json: bool) -> None:
        """One question, without more ado."""
        messages = [*self._messages, self._question(question)]
        if json:
            emit(self._client.complete(self._app, messages, **self._options))
            return
        for text in self._client.chat(self._app, messages, **self._options):
            _write(text)
        _write("\n")

    def go_on(self) -> None:
        """Until the user leaves."""
        import readline  # noqa: F401  gives `input` editing and history

        from cornserve.client import ApiStatusError

        stderr().print(f"Talking to {self._app}. {HELP}", style="dim", markup=False)
        while (question := _ask()) is not None:
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
                        self._turn(question)
                    except ApiStatusError as error:
                        stderr().print(f"error: {error}", style="red", markup=False)

    def _turn(self, question: str) -> None:
        """A question and its answer, of which a Ctrl-C keeps what there was; one that failed was never asked."""
        messages = [*self._messages, self._question(question)]
        pieces = []
        try:
            for text in self._client.chat(self._app, messages, **self._options):
                pieces.append(text)
                _write(text)
        except KeyboardInterrupt:
            _write(" …")
        _write("\n\n")
        self._messages = [*messages, _message("assistant", "".join(pieces))]
        self._images = []  # they are among the messages

    def _question(self, text: str) -> Message:
        return _message("user", [*self._images, {"type": "text", "text": text}] if self._images else text)


def _ask() -> str | None:
    try:
        return input("> ")
    except (EOFError, KeyboardInterrupt):
        stdout().print()
        return None


def _image(named: str) -> Mapping[str, Any]:
    from cornserve.client import image_part

    try:
        return image_part(named if _is_url(named) else Path(named).expanduser())
    except (OSError, ValueError) as error:
        raise Problem(f"cannot send {named}: {error}") from error


def _is_url(named: str) -> bool:
    return named.startswith(("http://", "https://", "data:"))


def _message(role: str, content: str | list[Mapping[str, Any]]) -> Message:
    return {"role": role, "content": content}


def _write(text: str) -> None:
    typer.echo(text, nl=False)
    sys.stdout.flush()
