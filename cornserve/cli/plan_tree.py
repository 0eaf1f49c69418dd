"""The tree of a planned app: its request types, its cells, their executors, and the replicas of these."""

from __future__ import annotations

from rich.text import Text
from rich.tree import Tree

from cornserve.app.plan import AppPlan
from cornserve.app.record import AppView, GroupStatus, ReplicaStatus


def plan_tree(app: AppView, plan: AppPlan) -> Tree:
    """Returns the tree of the cells that run or that the plan has, with their planned rates."""
    target = "" if plan.target is None else f", target {plan.target:.4g}"
    tree = Tree(Text(f"plan  {plan.rate:.4g} requests/s{target}, {plan.gpus} GPUs or slots"))
    groups: dict[str, list[GroupStatus]] = {name: [] for name, _ in plan.running_cells}
    for group in app.status.groups:
        if group.cell is not None:
            groups.setdefault(group.cell, []).append(group)
    if app.status.adaptation is not None and app.status.adaptation.rates:
        types = tree.add(Text("types", "bold"))
        for kind in app.status.adaptation.rates:
            name = kind.type or "not planned"
            types.add(Text(f"{name}  {kind.observed:.4g} of {kind.planned:.4g} requests/s arrive"))
    planned = dict(plan.running_cells)
    for name, members in groups.items():
        rate = f"{planned[name].rate:.4g} requests/s" if name in planned else "ends when the plan is ready"
        cell = tree.add(
            Text.assemble((f"cell {name}" if name else "cell, shared with other apps", "bold"), f"  {rate}")
        )
        for group in members:
            apps = f", shared by {group.apps} apps" if group.apps > 1 else ""
            executor = cell.add(
                Text.assemble((group.option, "bold"), f"  {group.ready} of {group.wanted} ready  {group.key}{apps}")
            )
            for replica in group.replicas:
                executor.add(describe_replica(replica))
    return tree


def describe_replica(replica: ReplicaStatus) -> Text:
    return Text(f"{replica.id}  {replica.state}  {replica.endpoint or ''}  {replica.message}".rstrip())
