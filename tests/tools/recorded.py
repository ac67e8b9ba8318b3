"""How often the next decisions of a fork are those that Kueue took: recordings of real clusters, replayed.

`python -m tests.tools.recorded FILE.jsonl.gz ...` stops just before each group of decisions (admissions and preemptions
that follow within `GROUP` of each other), asks a fork of the cluster as the console knows it there what comes next, and
counts the decisions that it names. Then it looks on as `forecast --check` does, once every two seconds.
"""

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct, field

from gpuconsole.backends.kube.recording import ClusterRecording
from gpuconsole.insight.forecast.backtest import DifferenceCause, ForecastChecker, ForecastDifferences, agrees
from gpuconsole.insight.forecast.decisions import AdmissionFact, workload_facts
from gpuconsole.insight.forecast.forecast import AdmissionForecaster, Forecast, ForecastAction, Forecaster
from gpuconsole.model.clock import SECOND, Span, Time
from gpuconsole.model.events import Applied, Deleted
from gpuconsole.model.snapshot import Snapshot, change_events
from gpuconsole.model.state import ClusterState
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue.config import KueueConfig
from gpuconsole.scheduling.kueue.observation import Observation
from gpuconsole.scheduling.kueue.session import KueueSession
from gpuconsole.sim.policy import SimPolicy

EVERY: Span = 2 * SECOND
GROUP: Span = SECOND // 20
SOON: Span = 2 * SECOND
ADMISSION, PREEMPTION = "admission", "preemption"


def policy_of(path: Path) -> SimPolicy:
    """How the recorded Kueue was configured."""
    return SimPolicy(kueue=KueueConfig(fair_sharing="fair" in path.name, wait_for_pods_ready=None))


def played(path: Path) -> Iterator[tuple[Time, list[Applied | Deleted]]]:
    """Yield what a console takes in at each moment: all objects of the begin, then each change."""
    recording = ClusterRecording(path)
    yield recording.begin, [Applied(recording.begin, obj) for obj in recording.objects()]
    for change in recording.changes():
        yield change.time, [change.event]


def _decides(state: ClusterState, events: list[Applied | Deleted]) -> list[AdmissionFact]:
    """What Kueue decided with this change."""
    for event in events:
        if isinstance(event, Applied) and isinstance(event.object, Workload):
            return list(workload_facts(state.get(Workload, event.object.key), event.object))
    return []


class Score(Struct):
    """How the next decisions of forks compare with those of Kueue, by kind. Mutates."""

    taken: Counter[str] = field(default_factory=Counter)
    """Decisions of Kueue."""
    foreseen: Counter[str] = field(default_factory=Counter)
    """Of these, those that the fork just before named."""
    named: Counter[str] = field(default_factory=Counter)
    """Decisions that forks named as the next."""
    came: Counter[str] = field(default_factory=Counter)
    """Of these, those that Kueue took within `SOON`."""


class _Decision(NamedTuple):
    time: Time
    kind: str
    workload: str


def next_decisions(path: Path) -> Score:
    """Compare what Kueue decided with what forks just before each group of decisions make of the cluster."""
    policy, state, foreseer, score = policy_of(path), ClusterState(), Forecaster(), Score()
    last, looked, before, foreseen = 0, 0, state.freeze(), Forecast()
    promised: list[_Decision] = []
    happened: list[_Decision] = []
    group: set[str] = set()
    for now, events in played(path):
        decided = _decides(state, events)
        again = any(fact.workload in group for fact in decided)
        if decided and (again or now - last > GROUP):
            group.clear()
            state.time = looked = now
            before = state.freeze()
            foreseen = foreseer.forecast(before, policy)
            promised += _named(foreseen)
        elif now - looked >= EVERY:
            state.time = looked = now
            foreseer.forecast(state.freeze(), policy)
        for event in events:
            state.apply(event)
        after = state.freeze() if decided else before
        for fact in decided:
            last, kind = now, PREEMPTION if fact.preempted else ADMISSION
            group.add(fact.workload)
            happened.append(_Decision(now, kind, fact.workload))
            score.taken[kind] += 1
            score.foreseen[kind] += agrees(foreseen, fact, before, after)
    for at, kind, workload in promised:
        score.named[kind] += 1
        score.came[kind] += any((k, w) == (kind, workload) and at <= t <= at + SOON for t, k, w in happened)
    return score


class QueueKnowledge(Struct):
    """How many decisions forecasts name, by what they know of Kueue's queues. Mutates."""

    decisions: int = 0
    with_shadow: int = 0
    """Named with the queues that a shadow followed, event by event."""
    without: int = 0
    """Named with the queues as they are reconstructed from looks, one every two seconds."""


def knowledge_of_queues(path: Path, most: int = 10_000) -> QueueKnowledge:
    """Forecast at each moment just before Kueue decides, with and without the queues of a shadow.

    Ends at the moment at which there are `most` decisions.
    """
    policy, state, score = policy_of(path), ClusterState(), QueueKnowledge()
    assert policy.kueue is not None
    looks, followed = AdmissionForecaster(policy.kueue), Observation(KueueSession(policy.kueue))
    last, looked, before, group = 0, 0, state.freeze(), set[str]()
    foreseen = {"with_shadow": Forecast(), "without": Forecast()}
    for now, events in played(path):
        decided = _decides(state, events) if looked else []
        again = any(fact.workload in group for fact in decided)
        if decided and (again or now - last > GROUP):
            if score.decisions >= most:
                break
            group.clear()
            state.time = now
            before = state.freeze()
            known = {"with_shadow": followed, "without": _at_last_look(looks, before)}
            foreseen = {name: Forecaster().forecast(before, policy, observed=one) for name, one in known.items()}
        for event in events:
            state.apply(event)
            followed.follow(event, now) if looked else followed.apply(event, now)
        after = state.freeze() if decided else before
        for fact in decided:
            last = now
            group.add(fact.workload)
            score.decisions += 1
            for name, one in foreseen.items():
                setattr(score, name, getattr(score, name) + agrees(one, fact, before, after))
        if now - looked >= EVERY:
            state.time = looked = now
            looks.ask(state.freeze())
            followed.update_queues(now)
    return score


def _at_last_look(looks: AdmissionForecaster, now: Snapshot) -> Observation:
    """Return the queues as of the last look, with what changed in the cluster since then."""
    assert looks.followed is not None, "the begin was looked at"
    looked, observed = looks.followed
    queues = observed.fork()
    for event in change_events(looked, now):
        queues.apply(event, now.time)
    queues.update_queues(now.time)
    return queues


def _named(foreseen: Forecast) -> Iterator[_Decision]:
    """What a fork says that comes next: victims, and the admissions of the next cycle."""
    for one in foreseen.prospects.values():
        if one.fate is ForecastAction.PREEMPTED:
            yield _Decision(foreseen.time, PREEMPTION, one.workload)
        elif one.fate is ForecastAction.ADMITTED and one.cycle == 1:
            yield _Decision(foreseen.time, ADMISSION, one.workload)


def looked_on(path: Path, every: Span = EVERY) -> ForecastDifferences:
    """What `forecast --check` says of it, with a look every two seconds."""
    policy, state, observer, said = policy_of(path), ClusterState(), ForecastChecker(), ForecastDifferences()
    looked = None
    for now, events in played(path):
        looked = now if looked is None else looked
        while now - looked >= every:
            looked += every
            state.time = looked
            said += observer.look(state.freeze(), policy)[1]
        for event in events:
            state.apply(event)
    return said


def main() -> None:
    for name in sys.argv[1:]:
        path = Path(name)
        score = next_decisions(path)
        for kind in (ADMISSION, PREEMPTION):
            print(
                f"{path.name}: {score.foreseen[kind]} of {score.taken[kind]} {kind}s named by the fork just before; "
                f"{score.came[kind]} of {score.named[kind]} that forks named came within {SOON // SECOND} s"
            )
        known = knowledge_of_queues(path)
        print(
            f"{path.name}: forecasts name {known.with_shadow} of {known.decisions} decisions with the queues of a "
            f"shadow, {known.without} with those of looks every {EVERY // SECOND} s"
        )
        said = looked_on(path)
        causes = ", ".join(f"{cause.value} {said.of(cause)}" for cause in DifferenceCause)
        print(f"{path.name}: {said.decisions} decisions, agreed {said.agreed}, {causes}; part {said.agreement:.3f}")


if __name__ == "__main__":
    main()
