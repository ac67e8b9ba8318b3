"""Figures: measured in CPU time, printed beside their ratio to a calibration loop and their bar, if they have one."""

import os
import statistics
import time
from collections.abc import Callable

RUNS = 5


def cpu(work: Callable[[], object]) -> float:
    """CPU seconds of one call."""
    before = time.process_time()
    work()
    return time.process_time() - before


def median(work: Callable[[], object], runs: int = RUNS) -> float:
    """Median CPU seconds of several calls."""
    return statistics.median(cpu(work) for _ in range(runs))


def calibrate() -> float:
    """CPU seconds of a fixed amount of plain Python: a million look-ups and additions."""

    def loop() -> None:
        table = {i: i for i in range(1000)}
        total = 0
        for i in range(1_000_000):
            total += table[i % 1000]

    return median(loop)


class Report:
    """Prints figures, each with its ratio to the calibration loop. `quick` asks for fewer repetitions."""

    def __init__(self, *, quick: bool = False) -> None:
        self.quick = quick
        self.runs = 1 if quick else RUNS
        self.loop = calibrate()
        self.missed: list[str] = []
        """Figures that are beyond their bars."""
        print(
            f"calibration loop {self.loop * 1000:.1f} ms CPU · {os.cpu_count()} cores · load {os.getloadavg()[0]:.1f}"
        )
        print(
            f"medians of {self.runs} in this run{' (--quick)' if quick else ''}; CPU time unless a row says otherwise"
        )

    def time(self, name: str, seconds: float, note: str = "", *, bar: float | None = None) -> None:
        """A time, with the most that it may be."""
        text = f"{name:<66} {seconds * 1000:>10.3f} ms   {seconds / self.loop:>9.4f} loops   {note}"
        self._print(name, text, seconds, bar, lambda value: f"{value * 1000:g} ms")

    def seconds(self, name: str, seconds: float, note: str = "", *, bar: float | None = None) -> None:
        """A long time, with the most that it may be."""
        text = f"{name:<66} {seconds:>10.2f} s    {seconds / self.loop:>9.1f} loops   {note}"
        self._print(name, text, seconds, bar, lambda value: f"{value:g} s")

    def rate(self, name: str, per_second: float, note: str = "") -> None:
        print(f"{name:<66} {per_second:>10.0f} /s   {per_second * self.loop:>9.2f} a loop  {note}", flush=True)

    def size(self, name: str, count: float, *, bar: float | None = None) -> None:
        """An amount of memory in bytes."""
        self._print(name, f"{name:<66} {count / 2**20:>10.1f} MiB ", count, bar, lambda value: f"{value / 2**20:g} MiB")

    def fact(self, name: str, text: str, *, right: bool = True) -> None:
        """A figure that is no time; `right` says whether it is as promised."""
        if not right:
            self.missed.append(name)
        print(f"{name:<66} {text}{'' if right else '  NOT AS PROMISED'}", flush=True)

    def _print(self, name: str, text: str, value: float, bar: float | None, show: Callable[[float], str]) -> None:
        if bar is not None:
            text += f"  (bar {show(bar)})"
            if value > bar:
                self.missed.append(name)
                text += " MISSED"
        print(text.rstrip(), flush=True)
