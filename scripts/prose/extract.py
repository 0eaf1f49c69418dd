"""Extracts the prose of a file. Blanks replace all other text, so that lines and columns stay the same."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

DOCSTRING_START, COMMENT_START = "¶", "†"
"""Marks that precede the first word of a docstring and of a comment."""

_MESSAGE_WORDS = 4
"""A string with fewer words is an identifier or a fragment, not a sentence."""

_MARKDOWN_CODE = re.compile(r"^ *```.*?^ *```|`+[^`\n]+`+|<[^>\n]+>|\]\([^)\n]*\)", re.MULTILINE | re.DOTALL)
_INLINE_CODE = re.compile(r"`[^`\n]+`|%\([^)]*\)\w|\{[^{}\n]*\}|https?://\S+")
_STRING_PREFIX = re.compile(r"[a-zA-Z]*(\"\"\"|'''|\"|')")


def prose_of(file: Path, source: str) -> str:
    return _of_python(source, messages=file.parts[0] != "tests") if file.suffix == ".py" else _of_markdown(source)


def _of_markdown(source: str) -> str:
    return _MARKDOWN_CODE.sub(_blanked, source)


def _of_python(source: str, *, messages: bool) -> str:
    """Returns docstrings and comments, and with `messages` also strings that look like sentences."""
    blank = [" " * len(line) for line in source.splitlines()]
    docstrings = set(_docstring_starts(ast.parse(source)))
    comment_row = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        text = _INLINE_CODE.sub(_blanked, token.string)
        if token.type == tokenize.COMMENT and not text.startswith(("#!", "# type:", "# noqa", "# mypy")):
            starts = token.start[0] != comment_row + 1
            _write(blank, token.start, text.replace("# ", f" {COMMENT_START}" if starts else "  ", 1))
            comment_row = token.start[0]
        elif token.type == tokenize.STRING and token.start in docstrings:
            _write(blank, token.start, _unquoted(text, DOCSTRING_START))
        elif token.type == tokenize.STRING and messages and _is_sentence(text):
            _write(blank, token.start, _unquoted(text, " "))
    return "\n".join(blank)


def _docstring_starts(tree: ast.Module) -> Iterator[tuple[int, int]]:
    """Yields the positions of docstrings, including those of attributes: strings that are statements."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.col_offset


def _is_sentence(text: str) -> bool:
    return len(re.findall(r"(?<!\S)[A-Za-z][a-z,.:;']*(?!\S)", text)) >= _MESSAGE_WORDS


def _unquoted(text: str, start: str) -> str:
    """Replaces the quotes with blanks, and the last opening quote with `start`."""
    match = _STRING_PREFIX.match(text)
    assert match is not None
    quotes = match.group(1)
    return " " * (match.end() - 1) + start + text[match.end() : -len(quotes)] + " " * len(quotes)


def _write(blank: list[str], start: tuple[int, int], text: str) -> None:
    row, column = start
    for offset, part in enumerate(text.splitlines()):
        line = blank[row - 1 + offset]
        blank[row - 1 + offset] = line[:column] + part + line[column + len(part) :]
        column = 0


def _blanked(match: re.Match[str]) -> str:
    """Replaces a text with blanks and keeps line ends. A letter replaces code, so that its sentence stays complete."""
    text = match.group()
    if "\n" not in text and len(text) > 2 and text.startswith("`"):
        return " " + "x" * (len(text) - 2) + " "
    return re.sub(r"[^\n]", " ", text)
