"""Checks of `cornserve doctor` that concern the home: its directory, its disk, its store and its instance."""

from __future__ import annotations

import errno
import os
import shutil

from cornserve.atomic_files import check_writable
from cornserve.cli.check_result import GIB, CheckResult, format_gib
from cornserve.home import Home
from cornserve.instance import Instance


def home_check(home: Home) -> CheckResult:
    try:
        check_writable(home.path)
    except OSError as error:
        full = error.errno == errno.ENOSPC
        remedy = "free space on its disk" if full else "make it writable"
        return CheckResult(
            "home",
            False,
            f"{home.path}: {error.strerror}",
            f"{remedy}, or set CORNSERVE_HOME to another directory",
            is_essential=True,
        )
    return CheckResult("home", True, str(home.path))


def disk_check(home: Home) -> CheckResult:
    existing = next(path for path in (home.path, *home.path.parents) if os.path.exists(path))
    free = shutil.disk_usage(existing).free
    return CheckResult(
        "disk",
        free >= 5 * GIB,
        f"{format_gib(free)} free",
        "models need disk space: set CORNSERVE_HOME to another directory",
    )


def store_check(home: Home) -> CheckResult:
    from cornserve.control.local_instance.repair import lost_apps, store_problems
    from cornserve.control.store.base import StoreUnavailableError
    from cornserve.control.store.sqlite_errors import repair_command

    if not os.path.isdir(home.path):  # In contrast to `Path.is_dir`, False if its path cannot be searched.
        return CheckResult("store", True, "empty")
    try:
        problems = store_problems(home)
        lost = [] if problems else lost_apps(home)
    except StoreUnavailableError as error:
        found, _, remedy = str(error).rpartition(": ")
        return CheckResult("store", False, found, remedy, is_essential=True)
    if lost:
        return CheckResult(
            "store",
            False,
            f"{home.store} has no apps, but these were deployed: {', '.join(lost)}",
            "a running controller writes a lost file again within seconds; if records were deleted, deploy the apps "
            f"again: `cornserve import {home.apps_file}`",
            is_essential=True,
        )
    remedy = f"keep what is readable, and set the rest aside: {repair_command(home.store)}"
    losses = sorted(home.path.glob(f"{home.store.name}.lost-*Z"))
    found = f"{home.store}, written again after a loss: {losses[-1]} has what was left" if losses else str(home.store)
    return CheckResult("store", not problems, "; ".join(problems) or found, remedy, is_essential=True)


def unreadable_instance(home: Home, error: OSError) -> CheckResult:
    return CheckResult(
        "instance",
        False,
        f"cannot read {home.instance}: {error.strerror}",
        "make it readable, or run the command as its user",
        is_essential=True,
    )


def instance_check(home: Home, instance: Instance | None) -> CheckResult:
    from cornserve.control.local_instance.repair import has_damaged_instance_file

    if instance is not None:
        return CheckResult("instance", True, f"runs at {instance.url} (process {instance.pid})")
    if has_damaged_instance_file(home):
        return CheckResult(
            "instance", False, f"{home.instance} is damaged", f"run `cornserve doctor --repair --home {home.path}`"
        )
    if Instance.read(home) is not None:
        return CheckResult(
            "instance",
            False,
            "was killed",
            "start it again with `cornserve up`, or clean up with `cornserve down --keep-apps`",
        )
    return CheckResult("instance", True, "not running: start one with `cornserve up`")
