"""Files without findings are not checked again until they change."""

from __future__ import annotations

from pathlib import Path

from scripts.prose.clean_files import CleanFiles


def test_a_file_is_clean_until_it_changes(tmp_path: Path) -> None:
    cache, file, other = tmp_path / "cache/prose", tmp_path / "page.md", tmp_path / "other.md"
    file.write_text("A page.")
    other.write_text("A page.")
    clean = CleanFiles(cache)
    assert file not in clean

    clean.add(file)
    clean.save()

    assert file in CleanFiles(cache)
    assert other not in CleanFiles(cache)
    file.write_text("Another page.")
    assert file not in CleanFiles(cache)
