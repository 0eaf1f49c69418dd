"""Runs a gateway and samples where its event loop spends CPU time: `python -m benchmarks.harness.sampler FILE …`.

It begins when it is sent `SAMPLE`, because imports would hide all else, and ends with the gateway. A timer that counts
CPU time interrupts at ticks of the kernel's clock (every 4 ms on most machines), and the stack of the main thread is
counted. Unlike with cProfile, small functions do not look dearer than they are. What runs in C counts for the line of
Python that called it.

FILE gets the stacks as flame graph tools take them ("outermost;…;innermost count"), and `FILE.top` the functions.
"""

from __future__ import annotations

import runpy
import signal
import sys
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType

SAMPLE = signal.SIGUSR1
SECONDS = 0.001

Stack = tuple[CodeType, ...]


class Sampler:
    def __init__(self) -> None:
        self._stacks: Counter[Stack] = Counter()

    def arm(self) -> None:
        signal.signal(signal.SIGPROF, self._sample)
        signal.signal(SAMPLE, lambda *_: signal.setitimer(signal.ITIMER_PROF, SECONDS, SECONDS))

    def stop(self) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)

    def _sample(self, signum: int, frame: FrameType | None) -> None:
        codes: list[CodeType] = []
        while frame is not None:
            codes.append(frame.f_code)
            frame = frame.f_back
        self._stacks[tuple(reversed(codes))] += 1

    def write(self, file: Path) -> None:
        folded = (f"{';'.join(map(_name, stack))} {count}" for stack, count in self._stacks.most_common())
        file.write_text("\n".join(folded) + "\n")
        file.with_name(file.name + ".top").write_text(self._top())

    def _top(self) -> str:
        total = self._stacks.total() or 1
        own: Counter[str] = Counter()
        within: Counter[str] = Counter()
        for stack, count in self._stacks.items():
            own[_name(stack[-1])] += count
            for name in {_name(code) for code in stack}:
                within[name] += count
        return "".join(
            f"{own[name] / total:6.1%} own {count / total:6.1%} with what it calls  {name}\n"
            for name, count in within.most_common()
            if own[name] / total >= 0.005 or count / total >= 0.02
        )


def _name(code: CodeType) -> str:
    """`package/module.py:function`, without the folders in which packages are installed."""
    path = Path(code.co_filename)
    parts = path.parts[-3:] if path.name != "__init__.py" else path.parts[-4:]
    return f"{'/'.join(parts)}:{code.co_qualname}".replace(" ", "_")


def main() -> None:
    file = Path(sys.argv.pop(1))
    sampler = Sampler()
    sampler.arm()
    try:
        runpy.run_module("cornserve.gateway", run_name="__main__", alter_sys=True)
    finally:
        sampler.stop()
        sampler.write(file)


if __name__ == "__main__":
    main()
