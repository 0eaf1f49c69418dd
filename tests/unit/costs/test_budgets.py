"""The file of budgets."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.costs.budgets import FILE, Cost, Tier, load_budgets, set_budgets
from tests.costs.recorder import COLLECTION
from tests.costs.scheduling import FAST_GROUPS
from tests.integration.docs.pages import ROOT

BUDGETS = """\
# A comment.

[fast]
default = { cpu_seconds = 10, memory_mib = 100 }

[fast.groups]
"kept" = { cpu_seconds = 70, memory_mib = 700 }
"cheaper" = { cpu_seconds = 70, memory_mib = 700 }

[slow]
default = { cpu_seconds = 20, memory_mib = 200 }

[slow.groups]
"a::b[c]" = { cpu_seconds = 80, memory_mib = 800 }
"""


@pytest.mark.parametrize("tier", Tier)
def test_each_budget_is_that_of_an_existing_group(tier: Tier) -> None:
    groups = load_budgets(tier, ROOT / FILE).groups.keys() - {COLLECTION, *FAST_GROUPS}

    assert [group for group in groups if not (ROOT / group.partition("::")[0]).exists()] == []


def test_budgets_are_set_to_twice_the_costs(tmp_path: Path) -> None:
    file = tmp_path / "budgets.toml"
    file.write_text(BUDGETS)

    set_budgets(Tier.FAST, {"cheaper": Cost(1, 2), "new": Cost(30, 40), "large": Cost(4, 1000)}, file)

    assert load_budgets(Tier.FAST, file).groups == {
        "kept": Cost(70, 700),
        "large": Cost(10, 2000),
        "new": Cost(60, 100),
    }
    assert file.read_text().startswith("# A comment.\n\n[fast]\ndefault = { cpu_seconds = 10, memory_mib = 100 }\n")
    assert file.read_text().endswith(BUDGETS[BUDGETS.index("[slow]") :])
