from __future__ import annotations

from ipaddress import ip_address

import pytest

from cornserve.media_sources import MediaSourceError, MediaSources


def test_by_default_images_come_from_the_public_internet() -> None:
    assert MediaSources.of([]) == MediaSources() == MediaSources.of(["public"])


def test_what_is_named_takes_the_place_of_the_default() -> None:
    sources = MediaSources.of(["Images.example.", "10.1.0.0/16", "10.9.9.9", "fd00::/8"])

    assert not sources.public
    assert sources.has_host("images.EXAMPLE")
    assert not sources.has_host("x.images.example")
    assert sources.has_address(ip_address("10.1.2.3"))
    assert sources.has_address(ip_address("10.9.9.9"))
    assert not sources.has_address(ip_address("10.2.0.0"))


def test_nothing_is_a_choice_of_its_own() -> None:
    assert MediaSources.of(["none"]).are_none

    with pytest.raises(MediaSourceError, match="goes with no other source"):
        MediaSources.of(["none", "public"])


@pytest.mark.parametrize("settings", [[], ["none"], ["public", "10.0.0.0/8", "a.example"], ["a.example"], ["::1"]])
def test_sources_are_handed_to_other_processes(settings: list[str]) -> None:
    sources = MediaSources.of(settings)

    assert MediaSources.of(sources.arguments[1::2]) == sources


@pytest.mark.parametrize("setting", ["", "http://x/", "x:80", "*.example", "10.0.0.1/8", "10.0.0.0/33", "a b"])
def test_what_names_no_source_is_refused(setting: str) -> None:
    with pytest.raises(MediaSourceError):
        MediaSources.of([setting])
