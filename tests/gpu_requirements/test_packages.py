"""The packages for GPUs can be imported, and fit together."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.gpu_requirements

IMPORT_ALL = """
import importlib, pkgutil, cornserve_executors

modules = [module.name for module in pkgutil.walk_packages(cornserve_executors.__path__, "cornserve_executors.")]
assert len(modules) > 100, modules
for name in modules:
    try:
        importlib.import_module(name)
    except Exception as error:
        print(f"{name}: {error!r}")
"""


@pytest.mark.timeout(1200)
def test_every_module_of_the_executors_imports_without_a_gpu() -> None:
    imported = subprocess.run([sys.executable, "-c", IMPORT_ALL], capture_output=True, text=True, check=False)

    assert (imported.returncode, imported.stdout) == (0, ""), imported.stderr


@pytest.mark.usefixtures("kernels")
def test_vllms_kernels_are_built_for_the_locked_torch() -> None:
    import torch
    import vllm._C_stable_libtorch
    import vllm._moe_C_stable_libtorch  # noqa: F401

    assert torch.version.cuda is not None
    for operator in ("_C.rms_norm", "_C_cache_ops.reshape_and_cache_flash", "_moe_C.topk_softmax"):
        namespace, name = operator.split(".")
        assert hasattr(getattr(torch.ops, namespace), name), operator


def test_triton_can_compile_the_code_that_launches_kernels(tmp_path: Path) -> None:
    from triton.backends.nvidia import driver
    from triton.runtime.build import _build

    source = Path(driver.__file__).with_name("driver.c")

    library = _build("launcher", str(source), str(tmp_path), [], driver.include_dirs, [], [])

    assert Path(library).is_file()
