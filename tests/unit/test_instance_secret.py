"""The file of an instance's secret."""

from __future__ import annotations

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cornserve.instance_secret import InstanceSecret, InstanceSecretError


def test_a_secret_is_created_once_and_only_its_owner_can_read_it(tmp_path: Path) -> None:
    file = tmp_path / "home" / "secret"

    secret = InstanceSecret.load_or_create(file)

    assert InstanceSecret.load_or_create(file) == InstanceSecret.load(file) == secret
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert list(file.parent.iterdir()) == [file]
    assert secret.key.hex() not in repr(secret)


def test_processes_that_start_at_the_same_time_get_the_same_secret(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        secrets = set(pool.map(InstanceSecret.load_or_create, [tmp_path / "secret"] * 32))

    assert len(secrets) == 1


def test_instances_have_different_secrets(tmp_path: Path) -> None:
    files = (tmp_path / "a", tmp_path / "b")

    assert len({InstanceSecret.load_or_create(file) for file in files}) == 2


@pytest.mark.parametrize("mode", [0o604, 0o602, 0o620, 0o644])
def test_a_file_that_others_can_access_is_refused(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "secret"
    InstanceSecret.load_or_create(file)
    file.chmod(mode)

    with pytest.raises(InstanceSecretError, match=rf"other users can access .* \(mode {mode:04o}\): run `chmod 600"):
        InstanceSecret.load(file)


@pytest.mark.parametrize("mode", [0o400, 0o440, 0o640])
def test_the_files_of_kubernetes_secrets_are_accepted(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "secret"
    secret = InstanceSecret.load_or_create(file)
    file.chmod(mode)

    assert InstanceSecret.load(file) == secret


@pytest.mark.parametrize("content", ["", "a" * 63, "a" * 66, "g" * 64, "\0" * 32, "é" * 64])
def test_a_file_without_a_secret_is_refused(tmp_path: Path, content: str) -> None:
    file = tmp_path / "secret"
    file.touch(0o600)
    file.write_text(content)

    with pytest.raises(InstanceSecretError, match="contains no secret of 64 hexadecimal digits"):
        InstanceSecret.load(file)


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(InstanceSecretError, match=r"cannot read the instance's secret .*: No such file"):
        InstanceSecret.load(tmp_path / "secret")
