"""The sandbox of app hosts in tests."""

from __future__ import annotations

import os

import pytest

from cornserve.app_host.sandbox import Protection


def require_sandbox() -> None:
    """Skips the test where the kernel cannot restrict apps, except in CI."""
    gaps = Protection.of_machine().gaps
    if gaps and not os.environ.get("CI"):
        pytest.skip("; ".join(gaps))  # A contributor's kernel may be older; CI's is not.
    assert not gaps
