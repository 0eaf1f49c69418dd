"""The state of one app for users."""

from __future__ import annotations

from datetime import datetime
from json import dumps

from rich.console import Group, RenderableType
from rich.text import Text

from cornserve.app.record import AppView
from cornserve.cli.adaptation_report import adaptation_lines
from cornserve.cli.console import local_time
from cornserve.cli.plan_tree import describe_replica, plan_tree
from cornserve.limits import MIB

STYLES = {"pending": "yellow", "starting": "yellow", "serving": "green", "parked": "dim", "failed": "red"}


def app_report(app: AppView, now: datetime) -> Group:
    """Returns the app's phase, settings, cells and replicas."""
    lines: list[RenderableType] = []
    lines.append(
        Text.assemble((app.name, "bold"), "  ", (app.phase, STYLES[app.phase]), f"  generation {app.generation}")
    )
    if app.status.suspended:
        lines.append(Text(f"{_suspension(app)}: correct its code and deploy it again", style="red"))
    if app.status.message:
        lines.append(Text(app.status.message))
    if _older_generation(app):
        lines.append(Text(f"{_older_generation(app)} until then"))
    model = app.spec.model
    lines.append(Text("from Python source" if model is None else f"model: {model.id}"))
    if model is not None and model.lora:
        lines.append(Text(f"LoRA adapter: {model.lora}"))
    if model is not None and model.drawer:
        lines.append(Text(f"draws with: {model.drawer}"))
    if model is not None and model.media_options:
        lines.append(Text(f"media options: {model.media_options.key}"))
    for override in app.spec.executors:
        executor = "all executors" if override.name == "*" else override.name
        if override.gpu_type is not None:
            lines.append(Text(f"GPUs of {executor}: {override.gpu_type}"))
        options = " ".join(
            f"{name}={value if isinstance(value, str) else dumps(value)}" for name, value in override.options.items()
        )
        if options:
            lines.append(Text(f"options of {executor}: {options}"))
    lines += [Text(line, style="yellow") for line in adaptation_lines(app, now)]
    if app.spec.plan is not None:
        lines += [Text(""), plan_tree(app, app.spec.plan)]
    for group in [group for group in app.status.groups if group.cell is None]:
        lines.append(Text.assemble("\n", (group.key, "bold"), f"  {group.ready} of {group.wanted} ready"))
        for replica in group.replicas:
            lines.append(Text.assemble("  ", describe_replica(replica)))
    if app.memory:
        lines.append(Text("\nmemory for tensors", "bold"))
    for memory in app.memory:
        used, resident, limit = (f"{size / MIB:.0f}" for size in (memory.used, memory.resident, memory.limit))
        pulled = f"; pulls by {', '.join(memory.protocols)}" if memory.protocols else ""
        if memory.pulled_bytes:
            pulled += f" ({', '.join(f'{size / MIB:.0f} MiB by {name}' for name, size in memory.pulled_bytes.items())})"
        copied = ""
        if memory.kv_copies:
            size, seconds = memory.kv_copied_bytes / MIB, memory.kv_copy_seconds
            copied = f"; {memory.kv_copies} KV caches copied ({size:.0f} MiB in {seconds:.3g} s)"
        sizes = f"{used} MiB used, {resident} MiB resident, at most {limit} MiB"
        lines.append(Text(f"  {memory.id}  {sizes}{pulled}{copied}"))
    if app.status.exits:
        lines.append(Text("\nlast exits", "bold"))
    for exit in app.status.exits:
        lines.append(Text(f"  {local_time(exit.time)}  {exit.replica}  {exit.message}"))
    for line in app.status.logs:
        lines.append(Text.assemble(("  | ", "dim"), line))
    return Group(*lines)


def app_message(app: AppView) -> str:
    return "; ".join(part for part in (_suspension(app), _older_generation(app), app.status.message) if part)


def _older_generation(app: AppView) -> str:
    """Returns which older generation serves, or an empty text."""
    serving = app.status.serving_generation
    return f"generation {serving} serves" if serving not in (None, app.generation) else ""


def _suspension(app: AppView) -> str:
    """Returns the reason for which the app is suspended, or an empty text."""
    return f"suspended: {app.status.suspended}" if app.status.suspended else ""
