"""The commands' part of docs/reference/cli.md, made from what `--help` is made from.

python -m tests.integration.docs.cli_reference    writes it anew
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typer.main import get_command

from cornserve.cli.commands import app
from tests.integration.docs.pages import ROOT

PAGE = ROOT / "docs/reference/cli.md"
BEGIN = "<!-- commands: made by `python -m tests.integration.docs.cli_reference` -->\n"


def reference() -> str:
    group: Any = get_command(app)
    return "\n".join("\n".join(_command(name, command)) for name, command in group.commands.items())


def _command(name: str, command: Any) -> Iterator[str]:
    arguments = [parameter for parameter in command.params if parameter.param_type_name == "argument"]
    options = [parameter for parameter in command.params if parameter.param_type_name == "option"]
    usage = " ".join(["cornserve", name, *(_usage(argument) for argument in arguments), "[OPTIONS]"])
    yield from (f"## cornserve {name}", "", f"    {usage}", "", *command.help.strip().splitlines(), "")
    if arguments:
        yield from ("| Argument | |", "|---|---|")
        yield from (f"| `{_escape(argument.metavar)}` | {argument.help} |" for argument in arguments)
        yield ""
    yield from ("| Option | Default | |", "|---|---|---|")
    yield from (f"| {_flags(option)} | {_default(option)} | {_meaning(option)} |" for option in options)
    yield ""


def _usage(argument: Any) -> str:
    metavar: str = argument.metavar
    return metavar if argument.required or metavar.startswith("[") else f"[{metavar}]"


def _flags(option: Any) -> str:
    value = "" if option.is_flag else f" {option.name.upper()}"
    return ", ".join(f"`{name}{value}`" for name in [*option.opts, *option.secondary_opts])


def _default(option: Any) -> str:
    if option.is_flag or option.default is None:
        return ""
    return f"`{option.default}`"


def _meaning(option: Any) -> str:
    variable = f" Also: `{option.envvar}`." if option.envvar else ""
    return f"{option.help}{variable}"


def _escape(text: str) -> str:
    return text.replace("|", "\\|")


def written() -> str:
    """What the page has."""
    return PAGE.read_text().split(BEGIN)[1]


def write(page: Path = PAGE) -> None:
    page.write_text(page.read_text().split(BEGIN)[0] + BEGIN + "\n" + reference())


if __name__ == "__main__":
    write()
