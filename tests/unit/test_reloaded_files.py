"""The gateway accepts other keys when the files with them change, as kubelets change the files of a Secret."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from cornserve.access import Access, AccessError
from cornserve.browser_origins import BrowserOrigins
from cornserve.gateway.errors import ApiError
from cornserve.gateway.http.auth import Authenticator
from cornserve.reloaded_files import ReloadedFiles
from tests.credentials import CREDENTIALS

OLD, NEW, OLD_TOKEN, NEW_TOKEN = "o" * 16, "n" * 16, "p" * 16, "q" * 16


class MountedSecret:
    """The files of a Secret: links into a directory that is replaced as a whole."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._versions = 0
        self.keys, self.token = directory / "api-keys", directory / "admin-token"
        for file in (self.keys, self.token):
            file.symlink_to(f"..data/{file.name}")

    def write(self, keys: str, token: str) -> None:
        self._versions += 1
        version = self._directory / f"..{self._versions}"
        version.mkdir()
        (version / "api-keys").write_text(keys)
        (version / "admin-token").write_text(token)
        link = self._directory / "..data_tmp"
        link.symlink_to(version.name)
        link.rename(self._directory / "..data")


@pytest.fixture
def secret(tmp_path: Path) -> MountedSecret:
    secret = MountedSecret(tmp_path)
    secret.write(OLD, OLD_TOKEN)
    return secret


@pytest.fixture
def files(secret: MountedSecret) -> ReloadedFiles[Access]:
    load = partial(Access.load, secret.keys, secret.token, environment={})
    return ReloadedFiles(load, [secret.keys, secret.token], AccessError, "secrets")


@pytest.fixture
def authenticator(files: ReloadedFiles[Access]) -> Authenticator:
    return Authenticator(files.current, "0.0.0.0", CREDENTIALS.secret, BrowserOrigins())


def status(authenticator: Authenticator, path: str, key: str) -> int:
    try:
        authenticator.check("GET", path, {b"authorization": f"Bearer {key}".encode()})
    except ApiError as error:
        return error.status
    return 200


def test_a_changed_secret_is_accepted_and_the_earlier_one_is_not(
    authenticator: Authenticator, secret: MountedSecret
) -> None:
    assert status(authenticator, "/v1/models", OLD) == 200

    secret.write(f"{NEW}\n# a comment\n", NEW_TOKEN)

    assert [status(authenticator, "/v1/models", key) for key in (OLD, NEW)] == [401, 200]
    assert [status(authenticator, "/admin/v1/apps", key) for key in (OLD_TOKEN, NEW_TOKEN)] == [401, 200]


@pytest.mark.parametrize("keys", ["", "short", NEW_TOKEN])
def test_files_that_cannot_be_used_change_nothing(
    authenticator: Authenticator, secret: MountedSecret, keys: str, caplog: pytest.LogCaptureFixture
) -> None:
    secret.write(keys, NEW_TOKEN)

    assert [status(authenticator, "/v1/models", key) for key in (OLD, NEW)] == [200, 401]
    assert "the secrets that were read before stay in use" in caplog.text
    secret.write(NEW, NEW_TOKEN)
    assert [status(authenticator, "/v1/models", key) for key in (OLD, NEW)] == [401, 200]


def test_unchanged_files_are_not_read_again(files: ReloadedFiles[Access]) -> None:
    assert files.current() is files.current()


def test_a_missing_file_is_an_error_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(AccessError, match="cannot read"):
        ReloadedFiles(partial(Access.load, tmp_path / "keys", None), [tmp_path / "keys"], AccessError, "secrets")
