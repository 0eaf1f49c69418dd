"""Extracts the prose of a file. Everything else becomes blanks, so that lines and columns stay."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator, Sequence
from pathlib import Path

DOCSTRING_START, COMMENT_START, MESSAGE_START = "¶", "†", "‡"
"""Stand before the first word of a docstring, a comment and a message."""

_MESSAGE_WORDS = 4
"""A string with fewer words is an identifier or a fragment, not a sentence."""

_MARKDOWN_CODE = re.compile(r"^ *```.*?^ *```|`+[^`\n]+`+|<[^>\n]+>|\]\([^)\n]*\)", re.MULTILINE | re.DOTALL)
_INLINE_CODE = re.compile(r"`[^`\n]+`|%\([^)]*\)\w|\{[^{}\n]*\}|https?://\S+")
_QUOTES = re.compile(r"\b[bfruBFRU]{0,2}(?:\"\"\"|'''|\"|(?<!\w)')|\"\"\"|'''|\"|'(?!\w)")
_NO_PROSE = ("#!", "# type:", "# noqa", "# mypy")


def prose_of(file: Path, source: str) -> str:
    return _of_python(source, messages=file.parts[0] != "tests") if file.suffix == ".py" else _of_markdown(source)


def _of_markdown(source: str) -> str:
    return _MARKDOWN_CODE.sub(_blanked, source)


def _of_python(source: str, *, messages: bool) -> str:
    """Returns docstrings and comments; with `messages`, also strings that look like sentences."""
    lines = source.splitlines()
    prose = [" " * len(line) for line in lines]
    for row, column, text in _comments(source):
        _write(prose, row, column, text)
    for node, is_docstring in _strings(ast.parse(source)):
        text = _INLINE_CODE.sub(_blanked, _segment(lines, node))
        row = node.lineno
        column = len(lines[row - 1].encode()[: node.col_offset].decode())  # ast counts bytes
        if is_docstring or (messages and _is_sentence(text)):
            quotes = _QUOTES.match(text)
            end = quotes.end() if quotes else 1
            start = DOCSTRING_START if is_docstring else MESSAGE_START
            _write(prose, row, column, start.rjust(end) + _QUOTES.sub(_blanked, text[end:]))
    return "\n".join(prose)


def _segment(lines: Sequence[str], node: ast.expr) -> str:
    """Returns the source of a node. `ast.get_source_segment` splits the whole file into lines for each node."""
    assert node.end_lineno is not None
    encoded = [line.encode() for line in lines[node.lineno - 1 : node.end_lineno]]
    encoded[-1] = encoded[-1][: node.end_col_offset]  # ast counts bytes
    encoded[0] = encoded[0][node.col_offset :]
    return b"\n".join(encoded).decode()


def _comments(source: str) -> Iterator[tuple[int, int, str]]:
    """Yields the row, column and text of each comment. A comment line after another one continues it."""
    last_row = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and not token.string.startswith(_NO_PROSE):
            row, column = token.start
            is_alone = not token.line[:column].strip()
            start = "  " if is_alone and row == last_row + 1 else f" {COMMENT_START}"
            yield row, column, start + _INLINE_CODE.sub(_blanked, token.string[2:])
            last_row = row if is_alone else 0


def _strings(node: ast.AST) -> Iterator[tuple[ast.expr, bool]]:
    """Yields string literals, f-strings as a whole, and whether each is a docstring: a string that is a statement."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Expr) and _is_string(child.value):
            yield child.value, True
        elif isinstance(child, ast.expr) and _is_string(child):
            yield child, False
        else:
            yield from _strings(child)


def _is_string(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _is_sentence(text: str) -> bool:
    return len(re.findall(r"(?<![\w/.-])[A-Za-z][a-z]*(?=[\s,.:;'\"]|$)", text)) >= _MESSAGE_WORDS


def _write(prose: list[str], row: int, column: int, text: str) -> None:
    for offset, part in enumerate(text.splitlines()):
        line = prose[row - 1 + offset]
        prose[row - 1 + offset] = line[:column] + part + line[column + len(part) :]
        column = 0


def _blanked(match: re.Match[str]) -> str:
    """Returns blanks for code and quotes. Letters replace code in a sentence, so that the sentence stays complete."""
    text = match.group()
    if "\n" not in text and len(text) > 2 and text.startswith("`"):
        return " " + "x" * (len(text) - 2) + " "
    return re.sub(r"[^\n]", " ", text)
