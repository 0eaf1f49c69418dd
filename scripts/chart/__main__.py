"""Writes what is generated from the Helm charts: `python -m scripts.chart [--check]`.

With `--check`, it writes nothing and fails if a file is not current.
"""

from __future__ import annotations

import argparse
import sys

from scripts.chart.plain_manifests import CHARTS, plain_manifests
from scripts.chart.values_reference import values_reference
from scripts.cluster.programs import ROOT, ProgramMissingError, go_is_installed

REFERENCE = ROOT / "docs" / "reference" / "chart-values.md"
MANIFESTS = ROOT / "kubernetes" / "manifests"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m scripts.chart", description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail if a file is not current")
    options = parser.parse_args()
    generated = {REFERENCE: values_reference((CHARTS / "cornserve" / "values.yaml").read_text())}
    try:
        for chart in (file.parent for file in CHARTS.glob("*/Chart.yaml")):
            generated[MANIFESTS / f"{chart.name}.yaml"] = plain_manifests(chart)
    except ProgramMissingError as error:
        print(f"the manifests of the charts cannot be rendered: {error}", file=sys.stderr)
        if go_is_installed():
            return 1
    outdated = [file for file, text in generated.items() if not file.exists() or file.read_text() != text]
    if options.check:
        for file in outdated:
            print(f"{file.relative_to(ROOT)} is not current: run `make manifests` and commit the result")
        return 1 if outdated else 0
    for file in outdated:
        file.write_text(generated[file])
    return 0


if __name__ == "__main__":
    sys.exit(main())
