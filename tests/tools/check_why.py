"""Hold the answers of `why` and `who` against what Kueue wrote (`make check-why`).

Every scenario of ../shared/conformance (or of GPUCONSOLE_CONFORMANCE) runs in the bare mode. Before each cycle the
engine says, from the state alone, what stands in the way of every head; where Kueue's decisions of that cycle are ours,
the code of each pending entry is the one that Kueue's message says, and every victim has Kueue's reason and paths.
Then on random states each suggestion of what would unblock a workload is applied in the bare mode, whole and with each
of its parts reduced: whole it lets the workload in, reduced it does not.
"""

import sys
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gpuconsole.insight.blockers import blocker
from gpuconsole.insight.pending import resource_groups
from gpuconsole.insight.reasons import Code, dominant, read_kueue
from gpuconsole.sim.bare import BareRun
from gpuconsole.sim.rehearsal import Rehearsal
from tests.conformance.scenarios import by_value, families, lines
from tests.shared import CONFORMANCE

Document = Mapping[str, Any]
DECISIONS = ("step", "activeBefore", "admitted", "preempted")
BAR = 99.0


class Family:
    """The counts of one family. Mutates."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.cycles = self.alike = 0
        self.codes: Counter[str] = Counter()
        self.agreed = self.asked = 0
        self.victims = self.known = 0
        self.misses: list[str] = []

    def replay(self, scenario: Document, want: Document) -> None:
        """Run a scenario and compare cycle by cycle, as long as the decisions are Kueue's."""
        run = BareRun(scenario)
        seen: dict[str, Code] = {}

        def look(rehearsal: Rehearsal) -> None:
            entries = rehearsal.session.examine(rehearsal.now)
            seen.clear()
            seen.update((entry.request.workload.key, blocker(entry)) for entry in entries)

        for number, (mine, theirs) in enumerate(zip(run.cycles(look), want["cycles"], strict=False)):
            self.cycles += 1
            where = f"{scenario['name']} cycle {number}"
            if _decided(mine) != _decided(theirs):
                self.misses.append(f"{where}: other decisions")
                return
            self.alike += 1
            self._compare_codes(where, run.rehearsal, seen, theirs)
            self._compare_victims(where, mine, theirs)

    def _compare_codes(self, where: str, rehearsal: Rehearsal, seen: Mapping[str, Code], theirs: Document) -> None:
        for entry in theirs.get("pending") or ():
            key, message = entry["workload"], entry["message"]
            said = _said(rehearsal, key, message)
            found = seen.get(key)
            self.asked += 1
            self.codes[said] += 1
            self.agreed += found is said
            if found is not said:
                self.misses.append(f"{where}: {key} is {found}, Kueue says {said}: {message}")

    def _compare_victims(self, where: str, mine: Document, theirs: Document) -> None:
        ours = {entry["workload"]: _who(entry) for entry in mine.get("preempted") or ()}
        for entry in theirs.get("preempted") or ():
            self.victims += 1
            right = ours.get(entry["workload"]) == _who(entry)
            self.known += right
            if not right:
                self.misses.append(f"{where}: victim {entry['workload']}: {ours.get(entry['workload'])}")

    def line(self) -> str:
        codes = " ".join(f"{code}:{count}" for code, count in sorted(self.codes.items()))
        return (
            f"{self.name:<10} codes {self.agreed}/{self.asked} ({percent(self.agreed, self.asked)})"
            f"  victims {self.known}/{self.victims}  cycles alike {self.alike}/{self.cycles}  {codes}"
        )


def percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.2f} %" if whole else "–"


def _decided(cycle: Document) -> dict[str, Any]:
    whole = by_value(cycle)
    return {name: whole.get(name) or [] for name in DECISIONS}


def _said(rehearsal: Rehearsal, key: str, message: str) -> Code:
    """What Kueue's message says, in one code."""
    queue = rehearsal.queue_of(key)
    return dominant(read_kueue(message), resource_groups(queue) if queue is not None else {})


def _who(entry: Document) -> tuple[str, str]:
    return entry["reason"], entry["message"]


def scored(folder: Path, chosen: str = "") -> Iterator[Family]:
    for name in families(folder):
        if chosen in name:
            wanted = {row["name"]: row for row in lines(folder / f"{name}.expected.jsonl.gz")}
            family = Family(name)
            for scenario in lines(folder / f"{name}.in.jsonl.gz"):
                family.replay(scenario, wanted[scenario["name"]])
            yield family


def main() -> int:
    parser = ArgumentParser(prog="python -m tests.tools.check_why", description=__doc__)
    parser.add_argument("--family", default="", help="only families whose names contain this")
    parser.add_argument("--show", type=int, default=3, metavar="N", help="print N misses of each family")
    options = parser.parse_args()
    if CONFORMANCE is None or not (CONFORMANCE / "scenarios").is_dir():
        print("no conformance data beside the project: nothing was compared", file=sys.stderr)
        return 0
    everything = []
    for family in scored(CONFORMANCE / "scenarios", options.family):
        everything.append(family)
        print(family.line(), flush=True)
        for miss in family.misses[: options.show]:
            print(f"  {miss}")
    agreed, asked = sum(f.agreed for f in everything), sum(f.asked for f in everything)
    known, victims = sum(f.known for f in everything), sum(f.victims for f in everything)
    print(f"why: {agreed} of {asked} codes ({percent(agreed, asked)}); who: {known} of {victims} victims")
    return 0 if agreed * 100 >= BAR * asked and known == victims else 1


if __name__ == "__main__":
    sys.exit(main())
