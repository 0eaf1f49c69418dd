"""API keys, the admin token, and the addresses that require them."""

from __future__ import annotations

from pathlib import Path

import pytest

from cornserve.access import ADMIN_TOKEN, API_KEYS, READ_TOKEN, Access, AccessError

KEY, OTHER, TOKEN, READER = "k" * 16, "o" * 16, "t" * 32, "r" * 32


def test_secrets_are_loaded_from_the_environment() -> None:
    access = Access.load(None, None, {API_KEYS: f"{KEY},{OTHER}", ADMIN_TOKEN: TOKEN})

    assert (access.api_keys, access.admin_token) == ((KEY, OTHER), TOKEN)


def test_secrets_are_loaded_from_files_with_comments(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text(f"# of the team\n{KEY}\n\n{OTHER}\n")
    (tmp_path / "token").write_text(f"{TOKEN}\n")

    access = Access.load(tmp_path / "keys", tmp_path / "token", {API_KEYS: "x" * 20, ADMIN_TOKEN: "y" * 20})

    assert (access.api_keys, access.admin_token) == ((KEY, OTHER), TOKEN)


def test_a_read_only_token_is_loaded_from_a_file_or_the_environment(tmp_path: Path) -> None:
    (tmp_path / "reader").write_text(f"{READER}\n")
    environment = {ADMIN_TOKEN: TOKEN, READ_TOKEN: "x" * 20}

    assert Access.load(None, None, environment, read_token=tmp_path / "reader").read_token == READER
    assert Access.load(None, None, environment).read_token == "x" * 20


def test_a_read_only_token_needs_another_admin_token() -> None:
    with pytest.raises(AccessError, match="no admin token"):
        Access(read_token=READER)
    with pytest.raises(AccessError, match="the read-only token is also the admin token"):
        Access(admin_token=TOKEN, read_token=TOKEN)
    with pytest.raises(AccessError, match="or an API key"):
        Access((KEY,), TOKEN, KEY)


def test_no_secrets_are_set_by_default() -> None:
    assert Access.load(None, None, {API_KEYS: "", ADMIN_TOKEN: ""}) == Access()


def test_repr_hides_the_secrets() -> None:
    assert KEY not in repr(Access((KEY,), TOKEN))
    assert TOKEN not in repr(Access((KEY,), TOKEN))


@pytest.mark.parametrize("secret", ["short", "with a space in it", "with,a,comma,in,it", "ümläut-in-the-key-"])
def test_a_weak_secret_is_rejected(secret: str) -> None:
    with pytest.raises(AccessError, match="at least 16 characters"):
        Access(admin_token=secret)


def test_an_api_key_must_not_be_the_admin_token() -> None:
    with pytest.raises(AccessError, match="the admin token is also an API key"):
        Access((KEY, TOKEN), TOKEN)


def test_api_keys_require_an_admin_token() -> None:
    with pytest.raises(AccessError, match="no admin token, so that everyone could deploy code"):
        Access((KEY,))


@pytest.mark.parametrize("content", ["", "# only a comment\n"])
def test_a_file_without_keys_is_rejected(tmp_path: Path, content: str) -> None:
    (tmp_path / "keys").write_text(content)

    with pytest.raises(AccessError, match="keys contains no key"):
        Access.load(tmp_path / "keys", None, {})


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(AccessError, match=r"cannot read .*/token: No such file"):
        Access.load(None, tmp_path / "token", {})
    with pytest.raises(AccessError, match=r"cannot read /dev/zero: it is a device, not a file: give a readable text"):
        Access.load(None, Path("/dev/zero"), {})


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "::1", "localhost"])
def test_loopback_addresses_need_no_secrets(host: str) -> None:
    Access().check_exposure(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "10.1.2.3", "2001:db8::1", "::ffff:10.0.0.1", "no.such.invalid"])
def test_network_addresses_need_api_keys_and_an_admin_token(host: str) -> None:
    with pytest.raises(AccessError, match=r"set API keys and an admin token \(--api-keys FILE or CORNSERVE_API_KEYS, "):
        Access().check_exposure(host)
    with pytest.raises(AccessError, match=r"set API keys \("):
        Access(admin_token=TOKEN).check_exposure(host)
    Access((KEY,), TOKEN).check_exposure(host)
