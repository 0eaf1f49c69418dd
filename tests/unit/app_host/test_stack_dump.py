"""Stack dumps of app hosts, to which the code of an app can write."""

from __future__ import annotations

from cornserve.app_host.stack_dump import find_location, has_frame

DUMP = """Stack (most recent call first):
  File "/usr/lib/python3/threading.py", line 7 in wait
  File "<echo>/app.py", line 12 in invoke
"""


def test_the_location_is_the_innermost_frame_of_the_source() -> None:
    assert has_frame(DUMP, "<echo>/app.py")
    assert find_location(DUMP, "<echo>/app.py") == "app.py:12 in invoke"
    assert find_location(DUMP, "<other>/app.py") == "threading.py:7 in wait"


def test_names_that_faulthandler_would_cut_are_not_part_of_a_frame() -> None:
    written = f'  File "{"x" * 2000}", line 1 in f\n' + f'  File "<echo>/app.py", line 1 in {"x" * 2000}\n'

    assert not has_frame(written, "<echo>/app.py")
    assert find_location(written + DUMP, "<echo>/app.py") == "app.py:12 in invoke"
