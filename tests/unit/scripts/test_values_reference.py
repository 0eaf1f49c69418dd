from __future__ import annotations

import pytest

from scripts.chart.values_reference import ChartValue, UndocumentedValueError, chart_values, values_reference

SOURCE = """\
# A title that describes no value.

image:
  # The name
  # of the image.
  name: a|b
  pull:
    # How often.
    policy: Always
# CPU and memory.
resources:
  limits: {cpu: 1}
"""


def test_values_have_their_comments_and_defaults() -> None:
    assert list(chart_values(SOURCE)) == [
        ChartValue("image.name", "a|b", "The name of the image."),
        ChartValue("image.pull.policy", "Always", "How often."),
        ChartValue("resources", {"limits": {"cpu": 1}}, "CPU and memory."),
    ]


def test_the_page_has_a_table_for_each_top_level_name() -> None:
    page = values_reference(SOURCE)

    assert page.index("## image") < page.index("## resources")
    assert '| `image.name` | `"a\\|b"` | The name of the image. |' in page


def test_a_value_needs_a_comment() -> None:
    with pytest.raises(UndocumentedValueError, match=r"image\.name"):
        list(chart_values("image:\n  name: a\n"))
