"""Policies by name, with those that other packages register."""

from __future__ import annotations

import pytest

from cornserve_policies import registry
from cornserve_policies.registry import UnknownPolicyError, routing_policy, routing_policy_names
from cornserve_policies.replica_routing import LeastLoadedRouting


def test_an_unknown_name_is_refused_with_the_known_names() -> None:
    message = "unknown routing policy 'best': use one of least-loaded, least-tokens, power-of-two, static"
    with pytest.raises(UnknownPolicyError, match=message):
        routing_policy("best")


@pytest.fixture
def sticky(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Installs a package with a policy `sticky`, and with a policy `broken` that cannot be loaded."""
    directory = tmp_path_factory.mktemp("packages")
    (directory / "sticky_policies.py").write_text(
        "class StickyRouting:\n"
        "    def choose(self, invocation, board, now):\n"
        "        return next(iter(board.available), None)\n"
    )
    metadata = directory / "sticky_policies-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: sticky-policies\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(
        f"[{registry.ROUTING_ENTRY_POINTS}]\n"
        "sticky = sticky_policies:StickyRouting\n"
        "broken = sticky_policies:Missing\n"
        "least-loaded = sticky_policies:StickyRouting\n"
    )
    monkeypatch.syspath_prepend(directory)


@pytest.mark.usefixtures("sticky")
def test_another_package_adds_policies_by_entry_points() -> None:
    assert {"sticky", "static"} < {*routing_policy_names()}
    assert type(routing_policy("sticky")).__name__ == "StickyRouting"
    assert isinstance(routing_policy("least-loaded"), LeastLoadedRouting)
    with pytest.raises(UnknownPolicyError, match="cannot load the routing policy 'broken': sticky_policies:Missing"):
        routing_policy("broken")
