"""Trains the demo models on a CPU, in minutes.

python -m cornserve_demo.train reader DIRECTORY
python -m cornserve_demo.train drawer DIRECTORY
python -m cornserve_demo.train speller DIRECTORY
"""

from __future__ import annotations

import argparse
from pathlib import Path

from cornserve_demo import image_model, language_model, omni_model
from cornserve_demo.reader import MODEL

_STEPS = {"reader": 700, "drawer": 2000, "speller": 1000}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "model",
        choices=[*_STEPS],
        help="reader: names the shapes of an image. drawer: draws shapes; its text encoder is Cornserve's reader. "
        "speller: spells a word in letters and beeps",
    )
    parser.add_argument("directory", type=Path, metavar="DIRECTORY", help="where to write the model")
    parser.add_argument("--steps", type=int, help="the number of training steps")
    arguments = parser.parse_args()
    steps: int = arguments.steps or _STEPS[arguments.model]
    if arguments.model == "reader":
        language_model.train(arguments.directory, steps, print)
    elif arguments.model == "drawer":
        image_model.train(arguments.directory, MODEL, steps, print)
    else:
        omni_model.train(arguments.directory, steps, print)


if __name__ == "__main__":
    main()
