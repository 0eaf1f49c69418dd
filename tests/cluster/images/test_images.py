"""The images run without privileges and with a read-only root file system."""

from __future__ import annotations

import json
import re
import stat

import httpx2
import pytest

import cornserve
from tests.cluster.images.container import UID, UnpackedImage
from tests.free_ports import free_port
from tests.waiting import until

SITE_PACKAGES = "opt/cornserve/lib/python3.11/site-packages"

DEPLOY = """
cat >/tmp/app.py <<END
from cornserve import App
from cornserve_echo import EchoTask

app = App(name="echo", paths=[EchoTask(prefix="so ")])
END
cornserve up --detach --port {port} && cornserve deploy /tmp/app.py && cornserve invoke echo '{{"text": "it goes"}}'
status=$?
cornserve down
exit $status
"""


@pytest.mark.parametrize("name", ["control", "echo"])
def test_an_image_says_what_it_is(name: str, request: pytest.FixtureRequest) -> None:
    image: UnpackedImage = request.getfixturevalue(name)

    assert image.name == f"localhost/cornserve-{name}:dev"
    assert image.labels["title"] == f"cornserve-{name}"
    assert image.labels["version"] == cornserve.__version__
    assert re.fullmatch("[0-9a-f]{40}(-modified)?|unknown", image.labels["revision"])
    assert image.config["User"] == f"{UID}:{UID}"


def test_a_derived_image_adds_one_layer(control: UnpackedImage, echo: UnpackedImage) -> None:
    assert echo.layers[:-1] == control.layers


@pytest.mark.parametrize(
    ("command", "output"),
    [
        ("cornserve --version", f"cornserve {cornserve.__version__}"),
        ("python -m cornserve.gateway --help", "cornserve-gateway"),
        ("python -m cornserve.control --help", "cornserve-controller"),
        ("python -m cornserve_executors.base --help", "cornserve-executor"),
        ("id -u -n", "cornserve"),
    ],
)
def test_the_programs_run(control: UnpackedImage, command: str, output: str) -> None:
    result = control.run(*command.split())

    assert result.returncode == 0, result.stderr
    assert output in result.stdout


def test_the_control_image_contains_no_engine_and_no_installer(control: UnpackedImage) -> None:
    unwanted = {"torch", "transformers", "vllm", "pip", "setuptools", "pytest"}

    assert {path.name for path in (control.root / SITE_PACKAGES).iterdir()} & unwanted == set()


def test_only_temporary_directories_are_writable(control: UnpackedImage) -> None:
    result = control.run("sh", "-c", f"touch /tmp/a; touch /a; touch /{SITE_PACKAGES}/a")

    assert result.stderr.count("Read-only file system") == 2


def test_no_file_grants_privileges_or_belongs_to_the_processes(control: UnpackedImage) -> None:
    files = [(path, path.lstat()) for path in control.root.rglob("*") if not path.is_symlink()]
    privileged = [path for path, status in files if path.is_file() and status.st_mode & (stat.S_ISUID | stat.S_ISGID)]
    writable = [path for path, status in files if path.is_file() and status.st_mode & stat.S_IWOTH]

    assert len(files) > 1000
    assert privileged == []
    assert writable == []
    assert {status.st_uid for _, status in files if status.st_uid == UID} == set()


def test_all_modules_are_compiled_and_never_checked_against_their_source(echo: UnpackedImage) -> None:
    packages = echo.root / SITE_PACKAGES
    modules = [path for name in ("cornserve", "cornserve_echo", "pydantic") for path in (packages / name).rglob("*.py")]
    compiled = [path.parent / "__pycache__" / f"{path.stem}.cpython-311.pyc" for path in modules]

    assert len(modules) > 200
    assert [path for path in compiled if not path.exists()] == []
    assert {path.read_bytes()[4:8] for path in compiled} == {b"\x01\0\0\0"}  # by hash, unchecked


async def test_the_gateway_answers_and_stops(control: UnpackedImage) -> None:
    port = free_port()
    secret = 'umask 077; python -c "print(bytes(32).hex())" >/tmp/secret'
    gateway = f"exec python -m cornserve.gateway --home /tmp/home --secret /tmp/secret --port {port}"

    async with httpx2.AsyncClient(trust_env=False) as client:

        async def lives() -> bool:
            assert process.poll() is None, process.communicate()
            try:
                return (await client.get(f"http://127.0.0.1:{port}/livez")).status_code == 200
            except httpx2.TransportError:
                return False

        with control.started("sh", "-c", f"mkdir /tmp/home; {secret}; {gateway}") as process:
            await until(lives)
            process.terminate()
            _, errors = process.communicate(timeout=60)

    assert process.returncode == 0, errors


def test_a_derived_image_serves_an_app_with_its_unit_task(echo: UnpackedImage) -> None:
    result = echo.run("sh", "-c", DEPLOY.format(port=free_port()))

    assert result.returncode == 0, result.stdout + result.stderr
    assert json.loads(result.stdout[result.stdout.index("{") : result.stdout.index("}") + 1])["text"] == "so it goes"


def test_the_build_leaves_no_caches(control: UnpackedImage) -> None:
    leftovers = ("opt/build", "root/.cache", "tmp/*", "tmp/.*", "var/cache/uv", "var/lib/apt/lists/*_*")

    assert [path for pattern in leftovers for path in control.root.glob(pattern)] == []
