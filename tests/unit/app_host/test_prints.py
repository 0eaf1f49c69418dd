"""The lines that an app prints, captured for its logs."""

from __future__ import annotations

import inspect

import pytest

from cornserve.app_host.prints import MAX_LINE_CHARACTERS, MAX_LINES, PrintCapture
from cornserve.v1 import app_host_pb2 as pb


def printed(*texts: str) -> list[str]:
    capture, reply = PrintCapture(__file__), pb.HostReply()
    with capture.collected(reply):
        for text in texts:
            capture.write(text)
    return [line.text for line in reply.printed]


def test_parts_of_a_line_are_joined_and_lines_are_divided() -> None:
    assert printed("a", " ", "b\n", "c\n\nd") == ["a b", "c", "", "d"]


@pytest.mark.parametrize("texts", [["x\n" * 3 * MAX_LINES], ["x\n"] * 3 * MAX_LINES], ids=["at once", "in turn"])
def test_lines_beyond_the_maximum_are_dropped(texts: list[str]) -> None:
    assert printed(*texts) == ["x"] * MAX_LINES


def test_a_long_line_is_cut() -> None:
    assert printed("x" * MAX_LINE_CHARACTERS, "y" * 10) == ["x" * MAX_LINE_CHARACTERS]


def test_prints_outside_of_a_run_are_not_part_of_the_next_one() -> None:
    capture, reply = PrintCapture(__file__), pb.HostReply()
    capture.write("before\nand ")

    with capture.collected(reply):
        capture.write("inside\n")

    assert [line.text for line in reply.printed] == ["inside"]


def test_each_line_has_the_line_of_the_source_where_it_begins() -> None:
    capture, reply = PrintCapture(__file__), pb.HostReply()
    first = inspect.currentframe().f_lineno + 2  # type: ignore[union-attr]
    with capture.collected(reply):
        capture.write("a ")
        capture.write("b\nc\n")

    assert [line.line for line in reply.printed] == [f"test_prints.py:{first}", f"test_prints.py:{first + 1}"]


def test_a_line_that_other_code_prints_has_no_line_of_the_source() -> None:
    capture, reply = PrintCapture("<app>/app.py"), pb.HostReply()
    with capture.collected(reply):
        capture.write("a\n")

    assert [line.line for line in reply.printed] == [""]
