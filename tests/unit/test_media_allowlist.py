from __future__ import annotations

from ipaddress import ip_address

import pytest

from cornserve.media_allowlist import MediaAllowlist, MediaAllowlistError


def test_the_public_internet_is_allowed_by_default() -> None:
    assert MediaAllowlist.parse([]) == MediaAllowlist() == MediaAllowlist.parse(["public"])


def test_named_allowlist_replace_the_default() -> None:
    allowlist = MediaAllowlist.parse(["Images.example.", "10.1.0.0/16", "10.9.9.9", "fd00::/8"])

    assert not allowlist.public
    assert allowlist.allows_host("images.EXAMPLE")
    assert not allowlist.allows_host("x.images.example")
    assert allowlist.allows_address(ip_address("10.1.2.3"))
    assert allowlist.allows_address(ip_address("10.9.9.9"))
    assert not allowlist.allows_address(ip_address("10.2.0.0"))


def test_none_cannot_be_combined_with_other_sources() -> None:
    assert MediaAllowlist.parse(["none"]).is_empty

    with pytest.raises(MediaAllowlistError, match="cannot be combined with other sources"):
        MediaAllowlist.parse(["none", "public"])


@pytest.mark.parametrize("settings", [[], ["none"], ["public", "10.0.0.0/8", "a.example"], ["a.example"], ["::1"]])
def test_an_allowlist_is_passed_to_other_processes_as_arguments(settings: list[str]) -> None:
    allowlist = MediaAllowlist.parse(settings)

    assert MediaAllowlist.parse(allowlist.cli_arguments[1::2]) == allowlist


@pytest.mark.parametrize("setting", ["", "http://x/", "x:80", "*.example", "10.0.0.1/8", "10.0.0.0/33", "a b"])
def test_an_invalid_source_is_rejected(setting: str) -> None:
    with pytest.raises(MediaAllowlistError):
        MediaAllowlist.parse([setting])
