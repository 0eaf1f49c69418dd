"""Runs a gateway and samples the CPU time of its event loop: `python -m benchmarks.harness.sampler FILE MODULE …`.

Sampling starts with `START_SIGNAL`, so that it does not cover imports, and ends with the gateway. A timer of CPU time
interrupts at ticks of the kernel's clock (every 4 ms on most machines), and the sampler counts the stack of the main
thread. Unlike cProfile, sampling does not overstate small functions. Time in C counts for the calling line of Python.

Writes the stacks to FILE in the format of flame graph tools ("outermost;…;innermost count"), and the functions to
`FILE.top`.
"""

from __future__ import annotations

import runpy
import signal
import sys
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType

START_SIGNAL = signal.SIGUSR1
INTERVAL_SECONDS = 0.001

Stack = tuple[CodeType, ...]


class Sampler:
    def __init__(self) -> None:
        self._stacks: Counter[Stack] = Counter()

    def install(self) -> None:
        signal.signal(signal.SIGPROF, self._sample)
        signal.signal(START_SIGNAL, lambda *_: signal.setitimer(signal.ITIMER_PROF, INTERVAL_SECONDS, INTERVAL_SECONDS))

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
            f"{own[name] / total:6.1%} own {count / total:6.1%} with callees  {name}\n"
            for name, count in within.most_common()
            if own[name] / total >= 0.005 or count / total >= 0.02
        )


def _name(code: CodeType) -> str:
    """Returns `package/module.py:function`, without the installation directory."""
    path = Path(code.co_filename)
    parts = path.parts[-3:] if path.name != "__init__.py" else path.parts[-4:]
    return f"{'/'.join(parts)}:{code.co_qualname}".replace(" ", "_")


def main() -> None:
    file, module = Path(sys.argv.pop(1)), sys.argv.pop(1)
    sampler = Sampler()
    sampler.install()
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    finally:
        sampler.stop()
        sampler.write(file)


if __name__ == "__main__":
    main()
