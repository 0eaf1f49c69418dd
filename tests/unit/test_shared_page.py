from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from cornserve.app_host.activity import Activity
from cornserve.blocking_apps import CurrentApp


@pytest.mark.parametrize("create_file", [Activity.create_file, CurrentApp.create_file])
def test_no_process_can_cut_the_memory_of_another(create_file: Callable[[], int]) -> None:
    descriptor = create_file()
    for nbytes in (0, 1 << 20):
        with pytest.raises(PermissionError):
            os.ftruncate(descriptor, nbytes)
    os.close(descriptor)
