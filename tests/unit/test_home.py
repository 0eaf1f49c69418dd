"""The access of other users to the home of an instance."""

from __future__ import annotations

import stat
from pathlib import Path

from cornserve.home import Home


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_other_users_lose_access_to_the_files_of_an_instance(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    own = [
        home.store,
        home.path / "state.db-wal",
        home.instance,
        home.logs / "gateway.log",
        home.replicas / "r" / "log",
    ]
    for file in (*own, home.path / "notes.txt"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("")
        file.chmod(0o664)
        file.parent.chmod(0o775)
    target = tmp_path / "target"
    target.write_text("")
    target.chmod(0o664)
    (home.logs / "link").symlink_to(target)

    home.create_private()

    assert {mode(file) for file in own} == {0o600}
    assert {mode(directory) for directory in (home.path, home.logs, home.replicas, home.replicas / "r")} == {0o700}
    assert mode(home.path / "notes.txt") == mode(target) == 0o664  # these are not of Cornserve


def test_a_new_home_is_private(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")

    home.create_private()

    assert mode(home.path) == 0o700
