"""Compare what Kueue decides with and without each of its caches (`make caches`); exits 1 if anything differs.

1. every conformance scenario in ../shared/conformance, and from the start of each of its steps a fork that skips as
   many heads as a forecast  2. random simulations, each with forecasts and estimating forks on the way  3. the answers
of why, eta, risk, plan, what-if and fair shares about bundled and about random clusters. `--part 0.1` compares a
random tenth of the scenarios and simulations, by `--seed`; a simulation is made again by the seed that is printed.
"""

import math
import sys
import time
from argparse import ArgumentParser
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import count, zip_longest
from pathlib import Path
from random import Random
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.cli.options import OpenRequest
from gpuconsole.cli.sources import open_simulation
from gpuconsole.insight.forecast.expected_start import Eta, expected_start
from gpuconsole.insight.pending.why import WhyPending, rehearsal_of, unblocking, why
from gpuconsole.insight.preemption.risk import Risk, risk
from gpuconsole.insight.sharing.fair_shares import ShareReport, shares
from gpuconsole.insight.unblock.search import Suggestions
from gpuconsole.insight.whatif.answer import WhatIf
from gpuconsole.insight.whatif.plan import CapacityPlan, plan
from gpuconsole.insight.whatif.whatif import what_if_steps
from gpuconsole.model.clock import HOUR, MINUTE, SECOND, Span
from gpuconsole.model.cluster import Node
from gpuconsole.model.commands import (
    Command,
    Delete,
    Drain,
    Finish,
    Reconfigure,
    Requeue,
    SetActive,
    SetCohort,
    SetPreemption,
    SetPriority,
    SetQuota,
    SetStopPolicy,
    Submit,
)
from gpuconsole.model.cooperative import complete_answer
from gpuconsole.model.events import Admit, Event, Evict, HistoryEvent, HistoryEventKind, Preempt, Refuse
from gpuconsole.model.labels import HOSTNAME
from gpuconsole.model.objects import Object
from gpuconsole.model.queues import ClusterQueue, StopPolicy
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue.config import KueueConfig
from gpuconsole.scheduling.kueue.messages import without_amounts
from gpuconsole.scheduling.kueue.scheduler import ReportRefusals
from gpuconsole.scheduling.kueue.session import KueueSession
from gpuconsole.sim.admission_simulator import AdmissionSimulator
from gpuconsole.sim.conformance_run import ConformanceRun, run
from gpuconsole.sim.engine import Simulation
from gpuconsole.sim.policy import SimPolicy
from gpuconsole.sim.run_times import RunTimes
from tests.conformance.scenarios import SCENARIOS, families, lines
from tests.support.kueue_caches import KueueCache, without
from tests.support.random_admission import GPU, RECLAIM, WITHIN, random_capacity, random_queues, random_workload
from tests.support.shared_material import CONFORMANCE
from tests.support.sim_cluster import START

Decision = object
"""Anything that must be the same with and without a cache; lists of them are compared in order."""
FIXTURES = (("org-cohort", 81 * MINUTE), ("three-teams", 30 * MINUTE), ("final-share", 30 * MINUTE), ("default", HOUR))
"""Bundled clusters, and how long each runs before it is asked about."""
MODELS = ("a", "b")
FORK_EVERY = 6
"""Cycles of a conformance scenario between two forks."""
MOST_CYCLES = 60
"""A fork that has not come to rest after so many cycles, as in a preemption loop, is left."""
GATES = (
    "PrioritizePreemptorWorkloads",
    "SchedulerTimestampPreemptionBuffer",
    "RecomputeAssignmentUponPreemptionTargetsOverlap",
    "FlavorFungibilityPreserveScanProgress",
    "PrioritySortingWithinCohort",
    "PartialAdmission",
)
"""Gates that change which decisions depend on which; a random simulation inverts some."""

PROGRESS = 60
"""Seconds between two lines that tell how far it is."""
SHOWN = 300
"""Characters of a decision in the report of a difference."""
DECIDED = (
    HistoryEventKind.RESERVED,
    HistoryEventKind.ADMITTED,
    HistoryEventKind.PREEMPTED,
    HistoryEventKind.EVICTED,
    HistoryEventKind.PENDING,
)


def scenario_decisions(scenario: Mapping[str, Any]) -> list[Decision]:
    """What each cycle of a conformance scenario decides, with all messages, and what forks made on the way decide."""
    if scenario.get("seconds"):
        return list(run(scenario)["cycles"])
    forks: list[Decision] = []
    number = count()

    def look(simulator: AdmissionSimulator) -> None:
        if next(number) % FORK_EVERY == 0:
            forks.append(list(_ahead(simulator)))

    cycles = list(ConformanceRun(scenario).run_cycles(look))
    return [*cycles, *forks]


class _ForecastSession:
    """A session whose cycles report what forecasts need: then it skips the most heads."""

    def __init__(self, session: KueueSession) -> None:
        self._session = session

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def run_cycle(self, now: int, **options: Any) -> Any:
        return self._session.run_cycle(now, **options | {"report": ReportRefusals.CHANGED_REASON})


def _ahead(simulator: AdmissionSimulator) -> Iterator[Decision]:
    """What a fork decides from now on, until it comes to rest, and how its queues and workloads are then."""
    fork = simulator.fork()
    fork.session = _ForecastSession(fork.session)  # type: ignore[assignment]
    end = fork.now + MOST_CYCLES * SECOND
    while fork.session.has_heads:
        if fork.now >= end:
            return
        decided = [decision for decision in fork.run_cycle() if not isinstance(decision, Refuse)]
        if decided:
            yield fork.now, decided
        if not fork.session.has_progressed:
            break
        fork.now += fork.session.skip_idle_cycles() * SECOND
    for name in sorted(fork.session.compiled_config.queues):
        yield name, [(one.workload.key, one.inadmissible) for one in fork.session.pending_workloads(name)]
    yield from (_without_amounts(workload) for _, workload in sorted(fork.workloads.items()))


def _without_amounts(workload: Workload) -> Workload:
    """A workload without the missing amounts in its conditions, which forks do not keep current."""
    plain = (replace(one, message=without_amounts(one.message)) for one in workload.conditions)
    return replace(workload, conditions=tuple(plain))


def simulation_decisions(seed: int) -> list[Decision]:
    """The life of a random cluster: all its events, its Snapshots, and those of the forks made on the way."""
    random = Random(seed)
    simulation = random_simulation(random, seed)
    found: list[Decision] = [*simulation.drain()]
    for step in range(random.randint(5, 9)):
        simulation.advance(simulation.now + random.choice((0, SECOND, 40 * SECOND, 5 * MINUTE, 20 * MINUTE)))
        for command in _random_commands(random, simulation.snapshot(), step):
            simulation.submit(command)
        if random.random() < 0.3:
            found.append(list(_future(random, simulation, seed + step)))
        found += simulation.drain()
        found.append(list(simulation.snapshot().objects()))
    return found


def random_simulation(random: Random, seed: int) -> Simulation:
    """A random cluster of a few nodes and queues, with all its jobs still to come."""
    inverted = {name: not KueueConfig().enabled(name) for name in GATES if random.random() < 0.12}
    config = KueueConfig(fair_sharing=random.random() < 0.25, gates=inverted)
    placed = random.random() < 0.15
    objects: list[Object] = [*random_capacity(random, placed), *random_queues(random, placed)]
    if not placed:
        objects += [_node(model, number) for model in MODELS for number in range(3)]
    return Simulation.from_objects(objects, policy=SimPolicy(kueue=config), seed=seed, start=START)


def _node(model: str, number: int) -> Node:
    name = f"{model}-{number}"
    room = {GPU: 8, "cpu": 32_000, "pods": 20}
    return Node(name=name, labels={"model": model, HOSTNAME: name}, capacity=room, allocatable=room)


def _random_commands(random: Random, snapshot: Snapshot, step: int) -> Iterator[Command]:
    """New workloads, often several that are equivalent; and sometimes a change of one, of a queue or of a node."""
    queues = [queue for _, queue in sorted(snapshot.cluster_queues.items())]
    yield Submit(tuple(_burst(random, random.choice(queues).name, snapshot.time, f"s{step}")))
    keys = sorted(key for key, workload in snapshot.workloads.items() if not workload.finished)
    queue = random.choice(queues)
    if keys and random.random() < 0.6:
        yield _random_change(random, random.choice(keys))
    if random.random() < 0.35:
        yield _random_queue_change(random, queue)
    if random.random() < 0.05:
        yield Drain(random.choice(sorted(snapshot.nodes)))
    if random.random() < 0.04:
        yield Reconfigure(fair_sharing=random.random() < 0.5)


def _burst(random: Random, queue: str, now: int, name: str, most: int = 3) -> Iterator[Workload]:
    """New workloads of one queue, of one to `most` kinds."""
    placed = random.random() < 0.3
    for number in range(random.randint(1, most)):
        like = random_workload(random, f"{name}-{number}", queue, number, placed)
        length = random.choice(("2m", "9m", "31m", "3h"))
        for copy in range(random.choice((1, 1, 2, 5))):
            title = f"{like.name}-{copy}"
            notes = {"gpuconsole.io/duration": length}
            yield replace(like, name=title, uid=f"uid-{title}", created=now, annotations=notes)


def _random_change(random: Random, key: str) -> Command:
    return random.choice(
        (
            Finish(key),
            Finish(key),
            Delete("workloads", key),
            SetPriority(key, random.choice((0, 10, 30))),
            SetActive(key, random.random() < 0.5),
            Requeue(key),
        )
    )


def _random_queue_change(random: Random, queue: ClusterQueue) -> Command:
    flavor = random.choice(queue.resource_groups[0].flavors).name
    return random.choice(
        (
            SetQuota(queue.name, flavor, GPU, random.randint(0, 9)),
            SetQuota(queue.name, flavor, GPU, random.randint(0, 9)),
            SetPreemption(queue.name, random.choice(WITHIN), random.choice(RECLAIM)),
            SetCohort(queue.name, random.choice(("", "pool", "left"))),
            SetStopPolicy(queue.name, random.choice(tuple(StopPolicy))),
        )
    )


def _future(random: Random, simulation: Simulation, seed: int) -> Iterator[Decision]:
    """An hour of a fork in which something else is submitted or changed; of two kinds, and with forks of its own."""
    observed = [key for key in sorted(simulation.snapshot().workloads) if random.random() < 0.2]
    estimates = random.random() < 0.4
    fork = simulation.estimating_fork(RunTimes(), seed) if estimates else simulation.forecast_fork(observed)
    fork.drain()
    for name in ("x", "y"):
        for command in _random_commands(random, fork.snapshot(), seed):
            fork.submit(command)
        queue = random.choice(sorted(fork.snapshot().cluster_queues))
        fork.submit(Submit(tuple(_burst(random, queue, fork.now, name, 9))))
        fork.advance(fork.now + random.choice((MINUTE, 10 * MINUTE, HOUR)))
        if random.random() < 0.3:
            fork = fork.fork()
    yield from _history(fork.drain())
    snapshot = fork.snapshot()
    fork.show_inadmissible(sorted(snapshot.workloads))
    for obj in fork.snapshot().objects():
        yield _without_amounts(obj) if isinstance(obj, Workload) else obj


def _history(events: Iterable[Event]) -> Iterator[Event]:
    """The history without refusals, of which forks record fewer."""
    return (e for e in events if isinstance(e, HistoryEvent) and e.what is not HistoryEventKind.PENDING)


def answers(make: Callable[[], Simulation]) -> list[Decision]:
    """The answers of each analysis about a cluster; `make` makes it, as a cluster keeps results of analyses."""
    simulation = make()
    snapshot = simulation.snapshot()
    session = simulation.session
    assert session is not None
    found: list[Decision] = [shares(session, snapshot.time)]
    waiting = sorted(key for key, one in snapshot.workloads.items() if not one.reserved and not one.finished)
    for key in waiting[:: max(1, len(waiting) // 3)]:
        rehearsal = rehearsal_of(simulation, snapshot)
        answer = why(snapshot, rehearsal, key, lambda: simulation)
        found += [answer, unblocking(snapshot, rehearsal, answer, lambda: simulation)]
        found.append(expected_start(simulation, key, runs=3, horizon=6 * HOUR))
    # The default limit of a risk is a number of steps, of which there are more without caches.
    found.append(risk(simulation, runs=3, horizon=2 * HOUR, effort=None))
    queue = min(snapshot.cluster_queues.values(), key=lambda one: one.name)
    flavor, resource = next(iter(queue.quotas()))
    questions: list[tuple[Command, ...]] = [(SetQuota(queue.name, flavor, resource, 0),)]
    asked = _similar(snapshot)
    if asked is not None:
        questions += [(Submit((asked,)),), (Submit((replace(asked, priority=5000),)),)]
        found.append(plan(simulation, (Submit((asked,)),), 2 * MINUTE, 30 * MINUTE))
    found += [complete_answer(what_if_steps(simulation, commands, HOUR)) for commands in questions]
    return found


def _similar(snapshot: Snapshot) -> Workload | None:
    """A new workload like the largest one that is there."""
    like = max(snapshot.workloads.values(), key=lambda one: (sum(p.count for p in one.pod_sets), one.key), default=None)
    if like is None:
        return None
    return Workload(
        namespace=like.namespace,
        name="asked",
        uid="uid-asked",
        created=snapshot.time,
        queue=like.queue,
        priority=like.priority,
        annotations={"gpuconsole.io/duration": "45m"},
        pod_sets=like.pod_sets,
    )


def fixture(name: str, age: Span) -> Simulation:
    """A bundled cluster that has run for a while."""
    simulation = open_simulation(OpenRequest(files=(name,))).simulation
    simulation.advance(simulation.now + age)
    return simulation


def busy_simulation(seed: int) -> Simulation:
    """A random cluster in the middle of its life."""
    random = Random(seed)
    simulation = random_simulation(random, seed)
    for step in range(4):
        for command in _random_commands(random, simulation.snapshot(), step):
            simulation.submit(command)
        simulation.advance(simulation.now + random.choice((SECOND, 40 * SECOND, 5 * MINUTE)))
    return simulation


class Case(Struct, frozen=True):
    """Something of which the decisions are compared."""

    group: str
    """The line of the report in which it counts."""
    name: str
    decide: Callable[[], list[Decision]]


def scenario_cases(folder: Path, random: Random, part: float) -> Iterator[Case]:
    """A random part of the conformance scenarios, of each family at least one."""
    for kind in SCENARIOS:
        for family in families(folder / kind):
            scenarios = list(lines(folder / kind / f"{family}.in.jsonl.gz"))
            for scenario in random.sample(scenarios, max(1, round(part * len(scenarios)))):
                yield Case(f"{kind}/{family}", scenario["name"], partial(scenario_decisions, scenario))


def simulation_cases(seeds: Iterable[int]) -> Iterator[Case]:
    """The random simulations with these seeds."""
    for seed in seeds:
        yield Case("random simulations", f"seed {seed}", partial(simulation_decisions, seed))


def answer_cases(seeds: Iterable[int], fixtures: Iterable[tuple[str, Span]] = FIXTURES) -> Iterator[Case]:
    """All analyses of bundled clusters, and of random ones with these seeds."""
    for name, age in fixtures:
        yield Case("answers", name, partial(answers, partial(fixture, name, age)))
    for seed in seeds:
        yield Case("answers", f"random cluster, seed {seed}", partial(answers, partial(busy_simulation, seed)))


class Comparison:
    """Decisions with all caches against those without one of them. Mutates."""

    def __init__(self, caches: Sequence[KueueCache] = tuple(KueueCache)) -> None:
        self.caches = caches
        self.cases: Counter[str] = Counter()
        self.decisions: Counter[str] = Counter()
        self.seconds: defaultdict[KueueCache | None, float] = defaultdict(float)
        """CPU time by cache that was off; None with all of them."""
        self.differences: list[str] = []

    def compare(self, case: Case) -> None:
        """Decide once with all caches, and once without each."""
        with_all = self._decide(case, None)
        self.cases[case.group] += 1
        self.decisions[case.group] += count_decisions(with_all)
        for cache in self.caches:
            found = first_difference(with_all, self._decide(case, cache))
            if found:
                self.differences.append(f"{case.group}, {case.name}, without {cache.value}: {found}")

    def _decide(self, case: Case, cache: KueueCache | None) -> list[Decision]:
        began = time.process_time()
        with without(*(() if cache is None else (cache,))):
            found = case.decide()
        self.seconds[cache] += time.process_time() - began
        return found

    def lines(self) -> Iterator[str]:
        """The report: what was compared, then a line for each cache."""
        for group, number in self.cases.items():
            yield f"{group:<24} {number:>6,} cases {self.decisions[group]:>9,} decisions"
        total, whole = self.decisions.total(), self.seconds[None]
        yield f"{'total':<24} {self.cases.total():>6,} cases {total:>9,} decisions"
        for cache in self.caches:
            different = sum(f", without {cache.value}: " in one for one in self.differences)
            cost = self.seconds[cache] / whole if whole else 1.0
            result = f"{total:,} decisions, {different} cases differ"
            yield f"without {cache.value:<34} {result}; {cost:.2f} times the CPU time"


def first_difference(with_all: Sequence[Decision], other: Sequence[Decision]) -> str:
    """The first decision that differs, shortened; empty if none does."""
    for number, (mine, theirs) in enumerate(zip_longest(with_all, other)):
        if mine != theirs:
            if isinstance(mine, list) and isinstance(theirs, list):
                return f"{number}: {first_difference(mine, theirs)}"
            return f"{number}: {_short(mine)} became {_short(theirs)}"
    return ""


def _short(decision: Decision) -> str:
    text = str(decision)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


def count_decisions(found: Decision) -> int:
    """Count admissions, evictions and refusals, and the answers of analyses."""
    match found:
        case list():
            return sum(map(count_decisions, found))
        case tuple():
            return sum(map(count_decisions, found))
        case dict():
            return sum(len(found.get(kind, ())) for kind in ("admitted", "preempted", "evicted", "pending"))
        case HistoryEvent():
            return found.what in DECIDED
        case Admit() | Preempt() | Evict():
            return 1
        case ShareReport() | WhyPending() | Suggestions() | Eta() | Risk() | CapacityPlan() | WhatIf():
            return 1
    return 0


def compare_all(comparison: Comparison, cases: Iterable[Case]) -> None:
    """Compare the cases; tells on stderr, once a minute, how far it is."""
    told = time.monotonic()
    for case in cases:
        comparison.compare(case)
        if time.monotonic() - told > PROGRESS:
            told = time.monotonic()
            number, differences = comparison.cases.total(), len(comparison.differences)
            print(f"{number:,} cases, {differences} differences; last: {case.group}, {case.name}", file=sys.stderr)


def main() -> int:
    parser = ArgumentParser(prog="python -m tests.tools.caches", description=__doc__)
    parser.add_argument("--simulations", type=int, default=2000, metavar="N", help="random simulations (default 2,000)")
    parser.add_argument(
        "--answers", type=int, default=60, metavar="N", help="random clusters for analyses (default 60)"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="first seed, and seed of the chosen part")
    parser.add_argument("--part", type=float, default=1.0, metavar="X", help="compare only this part of everything")
    parser.add_argument("--cache", action="append", choices=[one.value for one in KueueCache], help="only these caches")
    parser.add_argument("--show", type=int, default=20, metavar="N", help="print at most N differences")
    options = parser.parse_args()
    comparison = Comparison([one for one in KueueCache if not options.cache or one.value in options.cache])
    seeds = range(options.seed, options.seed + math.ceil(options.part * options.simulations))
    asked = range(options.seed, options.seed + math.ceil(options.part * options.answers))
    print(f"random simulations: seeds {_span(seeds)}; random clusters for analyses: seeds {_span(asked)}", flush=True)
    if CONFORMANCE is None or not (CONFORMANCE / SCENARIOS[0]).is_dir():
        print("no conformance data beside the project: no scenarios were compared", file=sys.stderr)
    else:
        compare_all(comparison, scenario_cases(CONFORMANCE, Random(options.seed), options.part))
    compare_all(comparison, simulation_cases(seeds))
    compare_all(comparison, answer_cases(asked, FIXTURES if options.part == 1 else FIXTURES[:1]))
    for line in (*comparison.lines(), *comparison.differences[: options.show]):
        print(line)
    return int(bool(comparison.differences))


def _span(seeds: range) -> str:
    return f"{seeds[0]} to {seeds[-1]}" if seeds else "none"


if __name__ == "__main__":
    sys.exit(main())
