from __future__ import annotations

import pytest

from cornserve.limits import LimitError, Limits


def test_settings_change_limits_by_name() -> None:
    assert Limits.parse(["body-mib=1", "in-flight=3"]) == Limits(body_mib=1, in_flight=3)


def test_limits_are_passed_to_other_processes_as_arguments() -> None:
    limits = Limits(body_mib=1, queue=2)

    assert limits.cli_arguments == ["--limit", "queue=2", "--limit", "body-mib=1"]
    assert Limits.parse(limits.cli_arguments[1::2]) == limits


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("body=1", "unknown limit 'body': give one of in-flight, "),
        ("body_mib=1", "unknown limit 'body_mib'"),
        ("body-mib", "'body-mib' does not set the limit body-mib to a whole number: give body-mib=NUMBER"),
        ("body-mib=1.5", "to a whole number"),
        ("body-mib=-1", "to a whole number"),
        (f"body-mib={'9' * 5000}", "9' does not set the limit body-mib to a whole number: .* with at most 18 digits"),
        ("body-mib=0", "the limit body-mib is 0: give at least 1"),
    ],
)
def test_an_invalid_setting_is_rejected(setting: str, message: str) -> None:
    with pytest.raises(LimitError, match=message):
        Limits.parse([setting])
