from __future__ import annotations

import pytest

from cornserve.limits import LimitError, Limits


def test_limits_are_changed_by_name() -> None:
    assert Limits.of(["body-mib=1", "in-flight=3"]) == Limits(body_mib=1, in_flight=3)


def test_limits_are_handed_to_other_processes() -> None:
    limits = Limits(body_mib=1, queue=2)

    assert limits.arguments == ["--limit", "queue=2", "--limit", "body-mib=1"]
    assert Limits.of(limits.arguments[1::2]) == limits


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("body=1", "there is no limit 'body'; there are: in-flight, "),
        ("body_mib=1", "there is no limit 'body_mib'"),
        ("body-mib", "has to be a whole number: body-mib=NUMBER, not 'body-mib'"),
        ("body-mib=1.5", "has to be a whole number"),
        ("body-mib=-1", "has to be a whole number"),
        ("body-mib=0", "has to be at least 1"),
    ],
)
def test_what_is_no_limit_is_refused(setting: str, message: str) -> None:
    with pytest.raises(LimitError, match=message):
        Limits.of([setting])
