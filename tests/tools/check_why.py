"""Hold the answers of `why` and `who` against what Kueue wrote (`make check-why`).

Every scenario of ../shared/conformance (or of GPUCONSOLE_CONFORMANCE) runs in the bare mode. Before each cycle the
engine says, from the state alone, what stands in the way of every head; where Kueue's decisions of that cycle are ours,
the code of each pending entry is the one that Kueue's message says, and every victim has Kueue's reason and paths.
Then on random states each suggestion of what would unblock a workload is applied in the bare mode, whole and with each
of its parts reduced: whole it lets the workload in, reduced it does not. The same for pods that wait for nodes, in the
simulation.
"""

import sys
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from gpuconsole.insight.pending.reasons import PendingReason, code_of, flavor_groups
from gpuconsole.insight.unblock.admission_trial import dominant_blocker
from gpuconsole.insight.unblock.changes import Step, apply_change, reductions
from gpuconsole.insight.unblock.placement_trial import PlacementTrial
from gpuconsole.insight.unblock.search import Suggestions, placement_suggestion_steps, suggestion_steps
from gpuconsole.model.cooperative import complete_answer
from gpuconsole.model.queues import WorkloadPriorityClass
from gpuconsole.scheduling.kueue.messages import paths_in, rule_in
from gpuconsole.sim.admission_simulator import AdmissionSimulator
from gpuconsole.sim.conformance_run import ConformanceRun
from tests.conformance.scenarios import by_value, families, lines
from tests.support.random_admission import random_rehearsal, resting
from tests.support.random_placement import random_places, waiting
from tests.support.shared_material import CONFORMANCE

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
        run = ConformanceRun(scenario)
        seen: dict[str, PendingReason] = {}

        def look(rehearsal: AdmissionSimulator) -> None:
            entries = rehearsal.session.examine_cycle(rehearsal.now)
            seen.clear()
            seen.update((entry.request.workload.key, dominant_blocker(entry)) for entry in entries)

        for number, (mine, theirs) in enumerate(zip(run.run_cycles(look), want["cycles"], strict=False)):
            self.cycles += 1
            where = f"{scenario['name']} cycle {number}"
            if _decided(mine) != _decided(theirs):
                self.misses.append(f"{where}: other decisions")
                return
            self.alike += 1
            self._compare_codes(where, run.simulator, seen, theirs)
            self._compare_victims(where, mine, theirs)

    def _compare_codes(
        self, where: str, rehearsal: AdmissionSimulator, seen: Mapping[str, PendingReason], theirs: Document
    ) -> None:
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


def _said(rehearsal: AdmissionSimulator, key: str, message: str) -> PendingReason:
    """What Kueue's message says, in one code."""
    workload = rehearsal.workloads.get(key)
    queue = rehearsal.session.look_up_queues(workload).cluster_queue if workload is not None else None
    return code_of(message, flavor_groups(queue))


def _who(entry: Document) -> tuple[object, ...]:
    """Why and for whom somebody had to go: the rule, as the reason and as the text say it, both paths, and the text."""
    message = entry["message"]
    return entry["reason"], rule_in(message), *paths_in(message), message


def scored(folder: Path, chosen: str = "") -> Iterator[Family]:
    for name in families(folder):
        if chosen in name:
            wanted = {row["name"]: row for row in lines(folder / f"{name}.expected.jsonl.gz")}
            family = Family(name)
            for scenario in lines(folder / f"{name}.in.jsonl.gz"):
                family.replay(scenario, wanted[scenario["name"]])
            yield family


def suggest(rehearsal: AdmissionSimulator, key: str, classes: Iterable[WorkloadPriorityClass] = ()) -> Suggestions:
    """What a whole search finds."""
    return complete_answer(suggestion_steps(rehearsal, key, classes))


class States:
    """The counts of the random states. Mutates."""

    def __init__(self) -> None:
        self.asked = self.helped = self.suggested = self.reduced = 0
        self.kinds: Counter[str] = Counter()
        self.misses: list[str] = []

    def judge(self, seed: int) -> None:
        """Suggest for one waiting workload of a random state, and apply each suggestion, whole and reduced."""
        rehearsal = random_rehearsal(seed)
        waiting = sorted(key for key, w in rehearsal.workloads.items() if not w.reserved and not w.finished)
        if not waiting:
            return
        key = waiting[seed % len(waiting)]
        found = suggest(rehearsal, key)
        self.asked += 1
        self.helped += bool(found.found) or found.admitted_anyway
        for suggestion in found.found:
            self.suggested += 1
            self.kinds.update(type(step).__name__ for step in suggestion.steps)
            if not lets_in(rehearsal, key, suggestion.steps):
                self.misses.append(f"seed {seed}: {key} is not let in by {suggestion.steps}")
            for reduced in reductions(suggestion.steps):
                self.reduced += 1
                if lets_in(rehearsal, key, reduced):
                    self.misses.append(f"seed {seed}: {key} needs no more than {reduced} of {suggestion.steps}")

    def judge_places(self, seed: int) -> None:
        """Suggest for one job whose pods wait for nodes, and make each suggestion in the simulation."""
        simulation = random_places(seed)
        keys = waiting(simulation)
        if not keys:
            return
        key = keys[seed % len(keys)]
        found = complete_answer(placement_suggestion_steps(simulation, key))
        trial = PlacementTrial(simulation, key, most_tries=10_000)
        self.asked += 1
        self.helped += bool(found.found) or found.admitted_anyway
        for suggestion in found.found:
            self.suggested += 1
            self.kinds.update(type(step).__name__ for step in suggestion.steps)
            if not trial.works(suggestion.steps):
                self.misses.append(f"places {seed}: {key} does not start by {suggestion.steps}")
            for reduced in reductions(suggestion.steps):
                self.reduced += 1
                if trial.works(reduced):
                    self.misses.append(f"places {seed}: {key} needs no more than {reduced} of {suggestion.steps}")

    def line(self, what: str) -> str:
        kinds = " ".join(f"{kind}:{count}" for kind, count in sorted(self.kinds.items()))
        return (
            f"{what}: {self.asked} states, {self.helped} with an answer; {self.suggested} suggestions, {self.reduced}"
            f" reductions, {len(self.misses)} wrong  {kinds}"
        )


def lets_in(rehearsal: AdmissionSimulator, key: str, steps: Sequence[Step]) -> bool:
    """Apply changes in the bare mode, and let it run until it rests: does the workload get quota meanwhile?"""
    fork = rehearsal.fork()
    for step in steps:
        apply_change(fork, key, step)
    return any(fork.workloads[key].reserved for _ in resting(fork))


def main() -> int:
    parser = ArgumentParser(prog="python -m tests.tools.check_why", description=__doc__)
    parser.add_argument("--family", default="", help="only families whose names contain this")
    parser.add_argument("--show", type=int, default=3, metavar="N", help="print N misses of each family")
    parser.add_argument("--states", type=int, default=2000, metavar="N", help="how many random states suggestions get")
    parser.add_argument("--places", type=int, default=200, metavar="N", help="how many of them in which pods wait")
    options = parser.parse_args()
    states, places = States(), States()
    for seed in range(options.states):
        states.judge(seed)
    print(states.line("unblock"), flush=True)
    for seed in range(options.places):
        places.judge_places(seed)
    print(places.line("unblock pods"), flush=True)
    for miss in (*states.misses, *places.misses):
        print(f"  {miss}")
    wrong = bool(states.misses or places.misses)
    if CONFORMANCE is None or not (CONFORMANCE / "scenarios").is_dir():
        print("no conformance data beside the project: nothing was compared", file=sys.stderr)
        return int(wrong)
    everything = []
    for family in scored(CONFORMANCE / "scenarios", options.family):
        everything.append(family)
        print(family.line(), flush=True)
        for miss in family.misses[: options.show]:
            print(f"  {miss}")
    agreed, asked = sum(f.agreed for f in everything), sum(f.asked for f in everything)
    known, victims = sum(f.known for f in everything), sum(f.victims for f in everything)
    print(f"why: {agreed} of {asked} codes ({percent(agreed, asked)}); who: {known} of {victims} victims")
    return int(wrong or agreed * 100 < BAR * asked or known != victims)


if __name__ == "__main__":
    sys.exit(main())
