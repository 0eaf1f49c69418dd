"""Makes the figures of one group of `benchmarks/guard.py` 20 % worse, in all Python processes that find this directory.

Python imports a module of this name at its start. `benchmarks/guard_check.py` sets `PYTHONPATH` to this directory, and
the name of the group in `CORNSERVE_REGRESSION`. It imports nothing that the start of Python does not import, because
one figure is compared with this start.
"""

from __future__ import annotations

import os
import sys

MODULES = {
    "gateway": "cornserve.gateway.endpoints.v1_router",
    "record_replay": "cornserve.task.recording",
    "tensors": "cornserve.transport.producer.production",
    "planner": "cornserve_planner.solve.cells",
    "command_line": "cornserve.cli.commands",
}
"""The module that is changed after its import, by group."""


class _AfterImport:
    """A finder that changes the module of a group as soon as it is imported."""

    def __init__(self, group: str) -> None:
        self._group = group

    def find_spec(self, name: str, path: object, target: object = None) -> object:
        if name != MODULES[self._group]:
            return None
        import importlib.util

        planted_regressions = importlib.import_module("planted_regressions")
        sys.meta_path.remove(self)  # type: ignore[arg-type]
        spec = importlib.util.find_spec(name)
        assert spec is not None
        loader = spec.loader
        assert loader is not None
        execute = loader.exec_module

        def execute_and_change(module: object) -> None:
            execute(module)  # type: ignore[arg-type]
            planted_regressions.CHANGES[self._group](module)

        loader.exec_module = execute_and_change  # type: ignore[method-assign]
        return spec


_group = os.environ.get("CORNSERVE_REGRESSION", "")
if _group in MODULES:
    sys.meta_path.insert(0, _AfterImport(_group))  # type: ignore[arg-type]
elif _group:
    import importlib

    importlib.import_module("planted_regressions").enlarge_idle_process()
