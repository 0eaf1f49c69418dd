"""Who may use an instance, and where it may listen without saying so."""

from __future__ import annotations

from pathlib import Path

import pytest

from cornserve.access import ADMIN_TOKEN, API_KEYS, Access, AccessError

KEY, OTHER, TOKEN = "k" * 16, "o" * 16, "t" * 32


def test_keys_come_from_the_environment() -> None:
    access = Access.read(None, None, {API_KEYS: f"{KEY},{OTHER}", ADMIN_TOKEN: TOKEN})

    assert (access.api_keys, access.admin_token) == ((KEY, OTHER), TOKEN)


def test_keys_come_from_files_which_may_have_comments(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text(f"# of the team\n{KEY}\n\n{OTHER}\n")
    (tmp_path / "token").write_text(f"{TOKEN}\n")

    access = Access.read(tmp_path / "keys", tmp_path / "token", {API_KEYS: "x" * 20, ADMIN_TOKEN: "y" * 20})

    assert (access.api_keys, access.admin_token) == ((KEY, OTHER), TOKEN)


def test_by_default_there_are_none() -> None:
    assert Access.read(None, None, {API_KEYS: "", ADMIN_TOKEN: ""}) == Access()


def test_no_secret_is_shown() -> None:
    assert KEY not in repr(Access((KEY,), TOKEN))
    assert TOKEN not in repr(Access((KEY,), TOKEN))


@pytest.mark.parametrize("secret", ["short", "with a space in it", "with,a,comma,in,it", "ümläut-in-the-key-"])
def test_what_is_no_good_secret_is_refused(secret: str) -> None:
    with pytest.raises(AccessError, match="at least 16 characters"):
        Access(admin_token=secret)


def test_an_api_key_that_is_the_admin_token_would_let_its_owner_deploy_code() -> None:
    with pytest.raises(AccessError, match="the admin token is one of the API keys"):
        Access((KEY, TOKEN), TOKEN)


def test_api_keys_without_an_admin_token_would_leave_the_more_dangerous_door_open() -> None:
    with pytest.raises(AccessError, match="no admin token, so that anyone could deploy code"):
        Access((KEY,))


@pytest.mark.parametrize("content", ["", "# only a comment\n"])
def test_an_empty_file_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "keys").write_text(content)

    with pytest.raises(AccessError, match="keys holds no key"):
        Access.read(tmp_path / "keys", None, {})


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(AccessError, match=r"cannot read .*/token: No such file"):
        Access.read(None, tmp_path / "token", {})


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "::1", "localhost"])
def test_this_machine_needs_no_keys(host: str) -> None:
    Access().check_exposure(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "10.1.2.3", "2001:db8::1", "::ffff:10.0.0.1", "no.such.invalid"])
def test_the_network_needs_keys_and_a_token(host: str) -> None:
    with pytest.raises(AccessError, match=r"set API keys and an admin token: --api-keys FILE or CORNSERVE_API_KEYS, "):
        Access().check_exposure(host)
    with pytest.raises(AccessError, match="set API keys: "):
        Access(admin_token=TOKEN).check_exposure(host)
    Access((KEY,), TOKEN).check_exposure(host)
