"""Trains the demo model on a CPU, in minutes.

python -m cornserve_demo.train reader DIRECTORY
"""

from __future__ import annotations

import argparse
from pathlib import Path

from cornserve_demo import language_model

_READER_STEPS = 700


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=["reader"], help="reader: names the shapes of an image")
    parser.add_argument("directory", type=Path, metavar="DIRECTORY", help="where to write the model")
    parser.add_argument("--steps", type=int, default=_READER_STEPS, help="the number of training steps")
    arguments = parser.parse_args()
    language_model.train(arguments.directory, arguments.steps, print)


if __name__ == "__main__":
    main()
