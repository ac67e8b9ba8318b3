"""scheduler/TestSchedule…: one scheduling cycle on a whole cluster.

Everything is compared: all workloads with their conditions, what the cache holds, who is left in the queues, the
events where a case lists them, and how many preemptions were skipped.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from gpuconsole.model.clock import SECOND, Time
from gpuconsole.model.cluster import Namespace
from gpuconsole.model.events import Admit, Evict, KeepWaiting, Preempt, Refuse
from gpuconsole.model.objects import TABLES, Object
from gpuconsole.model.queues import ClusterQueue
from gpuconsole.model.workloads import Admission, Workload
from gpuconsole.scheduling.kueue import apply_decisions, conditions
from gpuconsole.scheduling.kueue.config import RETAIN, KueueConfig, Transformation
from gpuconsole.scheduling.kueue.pod_resources import Holding
from gpuconsole.scheduling.kueue.session import KueueSession
from tests.conformance import world
from tests.conformance.events import Seen, events_of, expected_events
from tests.conformance.tables import Case, Check, Document, Table, compare

_NAMESPACES = {
    "default": "",
    "eng-alpha": "eng",
    "eng-beta": "eng",
    "eng-gamma": "eng",
    "sales": "sales",
    "lend": "lend",
}
_ORDER = list(TABLES)
_STATUS = {
    *("conditions", "admission", "requeueState", "reclaimablePods", "admissionChecks", "unhealthyNodes"),
    *("accumulatedPastExecutionTimeSeconds", "schedulingStats", "resourceRequests"),
}
"""Fields of a workload's status that are compared."""


class Cycle:
    """A cluster as a case describes it, and what one cycle made of it. Mutates."""

    def __init__(self, config: KueueConfig, things: Iterable[Object], now: Time, *, failing: bool = False) -> None:
        ordered = sorted(things, key=lambda thing: _ORDER.index(type(thing)))
        self.now = now
        self.config = config
        self.failing = failing
        """Every write of a status fails."""
        self.gone = False
        """They fail because the workloads are not there any more."""
        self.workloads = {thing.key: thing for thing in ordered if isinstance(thing, Workload)}
        self.queues = {thing.name: thing for thing in ordered if isinstance(thing, ClusterQueue)}
        self.session: KueueSession = world.session(config, ordered, now)
        self.events: list[Seen] = []
        self.refused: set[str] = set()
        self.skipped: dict[str, int] = dict.fromkeys(self.queues, 0)

    def run(self) -> None:
        """One cycle, with what is written of it."""
        decisions = self.session.run_cycle(self.now)
        for decision in decisions:
            before = self.workloads[decision.workload]
            if isinstance(decision, Evict) and self.failing:
                self._keep(decision)
                continue
            match decision:
                case Admit():
                    if self.failing:
                        self.session.apply(before, self.now)
                        continue
                    after = self._admit(before, decision.admission)
                case Refuse():
                    if decision.skipped_preemption:
                        self.skipped[self._queue_of(before)] += 1
                    after = conditions.apply_refusal(
                        before, decision, self.now, granular=self.config.has_granular_reasons
                    )
                    self.refused.add(before.key)
                case Preempt() | Evict():
                    after = apply_decisions.with_eviction(before, decision, self.now)
                case KeepWaiting():
                    after = before
            self.events += events_of(decision, before, after, self.workloads, self.config, self.now)
            if not self.failing:
                self.workloads[decision.workload] = after

    def _keep(self, decision: Evict) -> None:
        """An eviction could not be written; if the workload is there, it is tried again, and says why."""
        before = self.workloads[decision.workload]
        if self.gone:
            return
        self.session.apply(before, self.now)
        again = KeepWaiting(before.key, decision.detail)
        self.events += events_of(again, before, before, self.workloads, self.config, self.now)

    def _admit(self, workload: Workload, admission: Admission) -> Workload:
        """Reserve quota; it is admitted at once if it knows all checks of its queue and they are ready."""
        reserved = conditions.reserve_quota(workload, admission, self.now)
        known = {check.name for check in workload.checks}
        if not known.issuperset(conditions.required_checks(reserved, self.queues[admission.cluster_queue])):
            return reserved
        return conditions.sync_admitted(reserved, self.now, granular=self.config.has_granular_reasons)

    def _queue_of(self, workload: Workload) -> str:
        return self.session._state.setup.cluster_queue_of(workload.local_queue)

    def holding(self) -> dict[str, Admission]:
        """Who holds quota in the cache."""
        roster = self.session._state.workload_index
        return {
            record.key: world.plain(record.workload.admission)
            for record in roster.all_queues()
            if isinstance(record, Holding) and record.workload.admission is not None
        }

    def left(self, *, parked: bool) -> dict[str, list[str]]:
        """ClusterQueue → who waits in its heap, or who is parked."""
        found = {
            name: sorted(p.workload.key for p in self.session.pending_workloads(name) if p.inadmissible == parked)
            for name in self.queues
        }
        return {name: keys for name, keys in found.items() if keys}


def in_every_run(
    check: Callable[[Table, Case, Mapping[str, bool]], Iterator[str]], table: Table, case: Case
) -> list[str]:
    """The differences of the first run that has some: a case may be run with several sets of gates."""
    for variant in case.variants or ({},):
        differences = list(check(table, case, {**case.gates, **variant}))
        if differences:
            return differences
    return []


def check_schedule(table: Table, case: Case, gates: Mapping[str, bool]) -> Iterator[str]:
    """One case of the tables that share TestSchedule's form."""
    cluster = table.fixtures["cfg"]
    given = case.input
    documents = [
        *cluster["resourceFlavors"],
        *cluster["clusterQueues"],
        *(given.get("additionalClusterQueues") or ()),
        *(given.get("cohorts") or ()),
        *cluster["queues"],
        *(given.get("additionalLocalQueues") or ()),
        *given["workloads"],
        *(given.get("objects") or ()),
    ]
    config = KueueConfig(fair_sharing=bool(given.get("enableFairSharing")), gates=gates)
    things = [*_namespaces(_NAMESPACES), *world.decode_all(documents)]
    cycle = Cycle(config, things, world.clock(cluster["fakeClock"]), failing=bool(given.get("admissionError")))
    cycle.run()
    yield from compare_workloads(cycle, case, given["workloads"])
    wanted = {key: world.admission(a) for key, a in (case.want.get("wantAssignments") or {}).items()}
    yield from compare("assignments", cycle.holding(), {key: world.plain(a) for key, a in wanted.items()})
    yield from _queues(cycle, case)
    if case.want.get("wantEvents"):
        yield from _events(cycle, case)
    for name, number in (case.want.get("wantSkippedPreemptions") or {}).items():
        yield from compare(f"skipped preemptions of {name}", cycle.skipped.get(name, 0), number)


def _namespaces(labels: Mapping[str, str]) -> list[Namespace]:
    return [Namespace(name=name, labels={"dep": label} if label else {}) for name, label in labels.items()]


def compare_workloads(cycle: Cycle, case: Case, given: Sequence[Document]) -> Iterator[str]:
    """All workloads of the API; conditions as they are with the gate UnadmittedWorkloadsObservability on, or off."""
    off = case.derived.get("wantWorkloadsConditionsObservabilityOff") or {}
    settled = {} if cycle.config.has_granular_reasons else off
    before = {_key(document): document for document in given}
    wanted = {_key(document): document for document in case.want.get("wantWorkloads") or ()}
    yield from compare("workloads", sorted(cycle.workloads), sorted(wanted))
    for key, document in wanted.items():
        if key not in cycle.workloads:
            continue
        want = world.decode_workload(document)
        if key in settled:
            want = replace(want, conditions=world.conditions(settled[key]))
        elif not cycle.config.has_granular_reasons:
            want = replace(want, conditions=world.unobserved(want.conditions))
        yield from compare(key, world.comparable(cycle.workloads[key]), world.comparable(want))
        yield from _unknown_fields(key, before.get(key, {}), document)
        yield from compare(f"resourceRequests of {key}", _requested(cycle, key, before), _stated(document))


def _unknown_fields(key: str, before: Document, want: Document) -> Iterator[str]:
    """Fields of the status that the model does not have must not be expected to change."""
    old, new = before.get("status") or {}, want.get("status") or {}
    for name in sorted((old.keys() | new.keys()) - _STATUS):
        yield from compare(f"status.{name} of {key}", old.get(name), new.get(name))


def _requested(cycle: Cycle, key: str, before: Mapping[str, Document]) -> dict[str, dict[str, int]]:
    """status.resourceRequests: written with a refusal, removed with a reservation, otherwise left alone."""
    workload = cycle.workloads[key]
    if key in cycle.refused and not cycle.failing:
        return cycle.session.requests_of(key)
    if workload.reserved and not world.decode_workload(before[key]).reserved:
        return {}
    return _stated(before[key])


def _stated(document: Document) -> dict[str, dict[str, int]]:
    listed = (document.get("status") or {}).get("resourceRequests") or ()
    return {entry["name"]: world.amounts(entry.get("resources") or {}) for entry in listed}


def _key(document: Document) -> str:
    metadata = document["metadata"]
    return f"{metadata.get('namespace', 'default')}/{metadata['name']}"


def _queues(cycle: Cycle, case: Case) -> Iterator[str]:
    for field, parked in (("wantLeft", False), ("wantInadmissibleLeft", True)):
        wanted = {name: sorted(keys) for name, keys in (case.want.get(field) or {}).items() if keys}
        yield from compare(field, cycle.left(parked=parked), wanted)


def _events(cycle: Cycle, case: Case, *, ordered: bool = True) -> Iterator[str]:
    options = str((case.input.get("eventCmpOpts") or {}).get("$cmp"))
    got, want = (
        cycle.events,
        expected_events(case.want.get("wantEvents") or (), granular=cycle.config.has_granular_reasons),
    )
    if "structFilter" in options:
        got, want = [event.silent() for event in got], [event.silent() for event in want]
    if not ordered:
        got, want = sorted(got), sorted(want)
    yield from compare("events", got, want)


def check_topology(table: Table, case: Case, gates: Mapping[str, bool]) -> Iterator[str]:
    """One case of TestScheduleForTAS, TestScheduleForTASPreemption and TestScheduleForTASCohorts."""
    given, cluster = case.input, table.fixtures.get("cfg") or table.fixtures
    names = (
        *("topologies", "nodes", "pods", "resourceFlavors", "admissionChecks", "cohorts", "clusterQueues"),
        "workloads",
    )
    documents: list[Any] = [document for name in names for document in given.get(name) or ()]
    now = world.clock(cluster["now"])
    things = [*_namespaces({"default": ""}), *world.decode_all([*documents, *cluster["queues"]])]
    config = KueueConfig(gates=gates, transformations=_transformations(given.get("resourceTransformations") or ()))
    cycle = Cycle(config, things, now, failing=bool(given.get("patchStatusErr")))
    cycle.gone = "not found" in str((given.get("patchStatusErr") or {}).get("$error"))
    first = {key for key, workload in cycle.workloads.items() if workload.admitted}
    if table.name.endswith("/TestScheduleForTAS"):
        first = {key for key in first if not cycle.workloads[key].unhealthy_nodes}
    if table.name.endswith("/TestScheduleForTAS"):
        cycle.now += SECOND
    cycle.run()
    if "wantWorkloads" in case.want or not table.name.endswith("/TestScheduleForTAS"):
        yield from compare_workloads(cycle, case, given["workloads"])
    new = {key: admission for key, admission in cycle.holding().items() if key not in first}
    wanted = {key: world.admission(a) for key, a in (case.want.get("wantNewAssignments") or {}).items()}
    yield from compare("new assignments", new, {key: world.plain(a) for key, a in wanted.items()})
    yield from _queues(cycle, case)
    yield from _events(cycle, case, ordered=table.name.endswith("/TestScheduleForTAS"))


def _transformations(listed: Sequence[Document]) -> dict[str, Transformation]:
    return {
        one["input"]: Transformation(
            input=one["input"],
            strategy=one.get("strategy") or RETAIN,
            multiply_by=one.get("multiplyBy") or "",
            outputs=one.get("outputs") or {},
        )
        for one in listed
    }


def check_progress(table: Table, case: Case, gates: Mapping[str, bool]) -> Iterator[str]:
    """TestLastSchedulingContext: a second cycle, after some workloads are gone, goes on where the first one stopped."""
    given, fixtures = case.input, table.fixtures
    documents = [*fixtures["resourceFlavors"], *given["cqs"], *fixtures["queues"], *given["workloads"]]
    things = [*_namespaces({"default": ""}), *world.decode_all(documents)]
    cycle = Cycle(KueueConfig(gates=gates), things, world.clock(fixtures["now"]))
    cycle.run()
    yield from compare_workloads(cycle, case, given["workloads"])
    for key in given.get("deleteWorkloads") or ():
        cycle.session.delete("workloads", key, cycle.now)
    cycle.session.requeue_inadmissible(cycle.now)
    cycle.run()
    wanted = {key: world.admission(a) for key, a in (case.want.get("wantAdmissionsOnSecondSchedule") or {}).items()}
    yield from compare("second schedule", cycle.holding(), {key: world.plain(a) for key, a in wanted.items()})


CHECKS: dict[str, Check] = {
    "scheduler/TestSchedule": lambda table, case: in_every_run(check_schedule, table, case),
    "scheduler/TestScheduleForFairSharing": lambda table, case: in_every_run(check_schedule, table, case),
    "scheduler/TestScheduleRecomputePreemptionTargets": lambda table, case: in_every_run(check_schedule, table, case),
    "scheduler/TestScheduleConcurrentAdmission": lambda table, case: in_every_run(check_schedule, table, case),
    "scheduler/TestLastSchedulingContext": lambda table, case: in_every_run(check_progress, table, case),
    "scheduler/TestScheduleForTAS": lambda table, case: in_every_run(check_topology, table, case),
    "scheduler/TestScheduleForTASPreemption": lambda table, case: in_every_run(check_topology, table, case),
    "scheduler/TestScheduleForTASCohorts": lambda table, case: in_every_run(check_topology, table, case),
}
