"""Runs conformance scenarios, whose results are compared with those of Kueue itself.

Scenarios have the format of `BareForm`. A result has an entry for each cycle, or each second with an event: decisions,
and the active and inadmissible workloads of each ClusterQueue.

`ConformanceRun` is admission alone, cycle by cycle: no controllers, pods or run times; admissions and evictions take
effect at once, and inadmissible workloads are requeued at once. `TimedConformanceRun` (`seconds: true`) goes second by
second, with Kueue's controllers and their timers: they reconcile until nothing changes (`run_controllers`), the pods of
an evicted workload terminate after the time in its annotation, and admission checks and pods change state on request
only.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from gpuconsole.model.clock import SECOND, Span, Time, parse_time
from gpuconsole.model.documents.reader import unknown_keys
from gpuconsole.model.events import AdmissionDecision, Admit, Preempt, Refuse
from gpuconsole.model.manifests import decode_object
from gpuconsole.model.objects import TABLES, Object
from gpuconsole.model.queues import AdmissionCheck, ClusterQueue, LocalQueue
from gpuconsole.model.resources import format_quantity
from gpuconsole.model.text import clean
from gpuconsole.model.workloads import CheckState, PodSetAssignment, Workload
from gpuconsole.scheduling.kueue import conditions
from gpuconsole.scheduling.kueue.conditions import PENDING, QUOTA_RESERVED, with_check
from gpuconsole.scheduling.kueue.config import KueueConfig, from_scenario
from gpuconsole.scheduling.kueue.configuration.form import GROUP, KIND, VERSION
from gpuconsole.scheduling.kueue.configuration.loading import load_text
from gpuconsole.scheduling.kueue.session import KueueSession
from gpuconsole.scheduling.kueue.workload_controller import reconcile, with_pods_ready_condition
from gpuconsole.sim.admission_simulator import AdmissionSimulator
from gpuconsole.sim.scenario_form import ScenarioForm, StepForm

Document = Mapping[str, Any]
Queues = dict[str, list[str]]
"""Keys of the workloads of each ClusterQueue, by its name."""

_PLACES = {table.__name__: place for place, table in enumerate(TABLES)}


def creation_order(documents: Iterable[Document]) -> list[Document]:
    """The initial objects of a scenario in the order of creation: by kind; unknown kinds last."""
    return sorted(documents, key=lambda document: _PLACES.get(str(document.get("kind", "")), len(_PLACES)))


def sorted_queues(queues: Queues) -> Queues:
    """Sort the workloads of each ClusterQueue by key."""
    return {name: sorted(keys) for name, keys in queues.items()}


def admissions_by_workload(decided: Iterable[AdmissionDecision]) -> list[dict[str, Any]]:
    """The admissions of a cycle by workload, in the form in which results are compared."""
    admitted = sorted((d for d in decided if isinstance(d, Admit)), key=lambda d: d.workload)
    return [
        {
            "workload": decision.workload,
            "clusterQueue": decision.admission.cluster_queue,
            "podSets": [_pod_set_result(assignment) for assignment in decision.admission.pod_sets],
        }
        for decision in admitted
    ]


def preemptions_by_workload(decided: Iterable[AdmissionDecision]) -> list[dict[str, Any]]:
    """The preemptions of a cycle by workload, in the form in which results are compared."""
    preempted = sorted((d for d in decided if isinstance(d, Preempt)), key=lambda d: d.workload)
    return [{"workload": d.workload, "reason": d.rule.value, "message": d.message} for d in preempted]


def _pod_set_result(assignment: PodSetAssignment) -> dict[str, Any]:
    result: dict[str, Any] = {
        "name": assignment.name,
        "count": assignment.count,
        "flavors": dict(assignment.flavors),
        "usage": {name: format_quantity(name, amount) for name, amount in assignment.usage.items()},
    }
    if assignment.topology:
        result["topology"] = [{"values": list(domain.values), "count": domain.count} for domain in assignment.topology]
    return result


TERMINATION_SECONDS = "conformance/termination-seconds"
"""Annotation of a workload: how long its pods take to end once it is evicted."""
_CONFIGURED = ("waitForPodsReady", "admissionFairSharing")


def timed_config(scenario: Document) -> KueueConfig:
    """Kueue's configuration of a timed scenario. Raises ValueError if it is invalid.

    waitForPodsReady and admissionFairSharing are off unless the scenario sets them.
    """
    named = {key: scenario[key] for key in _CONFIGURED if scenario.get(key) is not None}
    document = {"apiVersion": f"{GROUP}/{VERSION}", "kind": KIND, **named}
    loaded = load_text(json.dumps(document), "scenario")
    if loaded.config is None:
        raise ValueError("; ".join(finding.problem for finding in loaded.findings))
    return replace(
        from_scenario(scenario),
        wait_for_pods_ready=loaded.config.wait_for_pods_ready if _CONFIGURED[0] in named else None,
        admission_fair_sharing=loaded.config.admission_fair_sharing,
    )


class ChangeLogEntry:
    """Collects what the controllers did since the last result entry: evictions, released quota, admissions. Mutates."""

    def __init__(self) -> None:
        self.evicted: dict[str, tuple[str, str]] = {}
        """Workload → reason and message, of all evictions but preemptions."""
        self.released: set[str] = set()
        """Workloads whose quota was released, except finished ones."""
        self.admitted_after_checks: set[str] = set()
        self.refused: set[str] = set()
        """Workloads whose QuotaReserved=False condition has a new reason or message, except by an eviction."""

    def __bool__(self) -> bool:
        return bool(self.evicted or self.released or self.admitted_after_checks)

    def record(self, before: Workload, after: Workload, *, by_eviction: bool) -> None:
        """Record what a controller changed in a workload, from its versions before and after."""
        if before.reserved and not (after.reserved or after.finished):
            self.released.add(after.key)
        value, says = before.condition(conditions.QUOTA_RESERVED), after.condition(conditions.QUOTA_RESERVED)
        if by_eviction or says is None or says.status:
            return
        if value is None or value.status or (value.reason, value.message) != (says.reason, says.message):
            self.refused.add(after.key)

    def discard(self, key: str) -> None:
        """Drop a deleted workload from `released` and `refused`."""
        self.released.discard(key)
        self.refused.discard(key)


class ConformanceCluster(AdmissionSimulator):
    """The objects of a scenario with `seconds`, with Kueue's scheduler and controllers. Mutates.

    An evicted workload releases its quota when its pods are gone.
    """

    def __init__(self, config: KueueConfig, now: Time) -> None:
        super().__init__(KueueSession(config), now, victims_keep_quota=True, requeues_at_once=False, stays_open=True)
        self.changes = ChangeLogEntry()
        self._config = config
        self._objects: dict[tuple[type[Object], str], Object] = {}
        self._specs: dict[tuple[type[Object], str], Any] = {}
        """The objects' specs as they were written: they may differ where the objects do not."""
        self._ready: set[str] = set()
        """Workloads all of whose pods are ready."""
        self._pods_end: dict[str, Time] = {}
        """Evicted workload → when its pods are gone."""
        self._reconcile_at: dict[str, Time] = {}
        """Workload → when its controller reconciles it again."""
        self._sampled_at: dict[str, Time] = {}
        """LocalQueue → when its controller reconciles it at the end of its sampling interval."""
        self._local_queues_due: dict[str, Time] = {}
        """LocalQueue → when its controller reconciles it because its workloads changed."""
        self._workloads_due: set[str] = set()
        """Workloads that the workload controller has to reconcile."""
        self._changed: set[str] = set()
        """Workloads whose jobs have to be reconciled."""

    def create(self, obj: Object, spec: Any) -> None:
        """Create an object; `spec` is its spec as written, by which a later `replace_object` detects a change."""
        if isinstance(obj, Workload):
            self.update_workload(obj)
        else:
            self._store(obj, spec)
        self.run_controllers()

    def replace_object(self, obj: Object, spec: Any) -> None:
        """Replace the user's fields of an object, or create it; a terminating ClusterQueue is unchanged."""
        if isinstance(obj, Workload):
            old = self.workloads.get(obj.key)
            queue = old.queue if old is not None and old.reserved else obj.queue
            self.update_workload(
                obj if old is None else replace(old, active=obj.active, priority=obj.priority, queue=queue)
            )
        else:
            known = self._objects.get((type(obj), obj.key))
            if isinstance(known, ClusterQueue) and known.terminating:
                return
            if isinstance(known, AdmissionCheck) and isinstance(obj, AdmissionCheck):
                obj = replace(known, active=obj.active)
            if known == obj:
                respecified = self._specs.get((type(obj), obj.key)) != spec
                self.session.apply_unchanged_write(obj, self.now, spec_changed=respecified)
            self._store(obj, spec)
        self.run_controllers()

    def delete_object(self, kind: type[Object], key: str) -> None:
        """Delete an object; a ClusterQueue terminates while workloads hold its quota."""
        if kind is Workload:
            self._drop_workload(key)
        elif kind is ClusterQueue and self.session.holds_quota(key):
            queue = self._objects.get((ClusterQueue, key))
            if isinstance(queue, ClusterQueue) and not queue.terminating:
                self._store(replace(queue, terminating=True), None)
        elif (kind, key) in self._objects:
            self._drop(kind, key)
        self.run_controllers()

    def finish(self, key: str) -> None:
        """Finish a workload, whether it ran or not; its pods end at once."""
        super().finish(key)
        self._pods_end.pop(key, None)
        self.run_controllers()

    def set_check_state(self, answer: Mapping[str, Any]) -> None:
        """Set the state of an admission check, if it is pending and its workload holds quota."""
        workload = self.workloads.get(answer["workload"])
        if workload is None or not workload.reserved or workload.finished or workload.is_true(conditions.EVICTED):
            return
        if not any(check.name == answer["check"] and check.state == PENDING for check in workload.checks):
            return
        state = CheckState(
            name=answer["check"],
            state=answer["state"],
            message=answer.get("message", ""),
            requeue_after=answer.get("requeueAfterSeconds"),
            since=self.now,
        )
        self.update_workload(replace(workload, checks=with_check(workload.checks, state, self.now)))
        self.run_controllers()

    def set_ready(self, key: str, *, ready: bool) -> None:
        """Set whether all pods of an admitted workload are ready."""
        workload = self.workloads.get(key)
        if workload is None or workload.finished or not workload.admitted or workload.is_true(conditions.EVICTED):
            return
        (self._ready.add if ready else self._ready.discard)(key)
        self._changed.add(key)
        self.run_controllers()

    @property
    def next_timer(self) -> Time | None:
        """The next moment at which pods end or a controller reconciles."""
        timers = (self._pods_end, self._reconcile_at, self._sampled_at, self._local_queues_due)
        return min((time for times in timers for time in times.values()), default=None)

    def handle_due(self) -> bool:
        """Handle what is due by now: ends of pods, then reconciles; False if nothing is due."""
        ended = _due_keys(self._pods_end, self.now)
        for key in ended:
            del self._pods_end[key]
        self._changed.update(ended)
        self.run_controllers()
        queues = sorted({*_due_keys(self._sampled_at, self.now), *_due_keys(self._local_queues_due, self.now)})
        for key in queues:
            self._reconcile_local_queue(key)
        looks = _due_keys(self._reconcile_at, self.now)
        for key in looks:
            del self._reconcile_at[key]
        self._workloads_due.update(looks)
        self.run_controllers()
        return bool(ended or queues or looks)

    @property
    def may_run_cycle(self) -> bool:
        """True if the scheduler has workloads to try in a new cycle, or an unfinished cycle."""
        session = self.session
        return not session.is_waiting_in_cycle and (session.has_open_cycle or session.has_heads)

    def pending_by_queue(self) -> tuple[Queues, Queues]:
        """Keys of the active and of the inadmissible workloads of each ClusterQueue."""
        active: Queues = {}
        inadmissible: Queues = {}
        for queue in self._objects_of_kind(ClusterQueue):
            for pending in self.session.pending_workloads(queue.name):
                (inadmissible if pending.inadmissible else active).setdefault(queue.name, []).append(
                    pending.workload.key
                )
        return sorted_queues(active), sorted_queues(inadmissible)

    def run_controllers(self) -> None:
        """Run the controllers, then the jobs, until nothing changes."""
        while self._workloads_due or self._changed:
            asked, self._workloads_due = sorted(self._workloads_due), set()
            for key in asked:
                self._reconcile_workload(key)
            changed, self._changed = sorted(self._changed), set()
            for key in changed:
                self._reconcile_job(key)
            for queue in list(self._objects_of_kind(ClusterQueue)):
                if queue.terminating and not self.session.holds_quota(queue.name):
                    self._drop(ClusterQueue, queue.name)

    def _reconcile_workload(self, key: str) -> None:
        """One Reconcile of the workload controller."""
        workload = self.workloads.get(key)
        if workload is None:
            return
        outcome = reconcile(workload, self.session.look_up_queues(workload), self._config, self.now)
        self._reconcile_at.pop(key, None)
        after = outcome.with_deactivation(self.now)
        if after is None:
            self._drop_workload(key)
        elif outcome.eviction is not None:
            marked = after.condition(conditions.EVICTED)
            assert marked is not None
            self.changes.evicted[key] = (marked.reason, marked.message)
            self.update_workload(after)
        elif after is not workload:
            if after.admitted and not workload.admitted:
                self.changes.admitted_after_checks.add(key)
            self.update_workload(after)
        elif outcome.reconcile_after:
            self._reconcile_at[key] = self.now + _round_up_to_second(outcome.reconcile_after)

    def _reconcile_job(self, key: str) -> None:
        """Reconcile a job: report whether its pods are ready, and release an evicted workload whose pods are gone."""
        before = workload = self.workloads.get(key)
        if before is None or workload is None or workload.finished:
            return
        if self._config.pods_ready_settings is not None:
            workload = with_pods_ready_condition(workload, key in self._ready, self.now)
        if workload.reserved and workload.is_true(conditions.EVICTED) and key not in self._pods_end:
            workload = conditions.release_quota(workload, self.now, granular=self._config.has_granular_reasons)
        if workload is not before:
            self.update_workload(workload, by_eviction=True)

    def _reconcile_local_queue(self, key: str) -> None:
        """One Reconcile of the LocalQueue controller, for admission fair sharing only."""
        self._local_queues_due.pop(key, None)
        self._sampled_at.pop(key, None)
        again = self.session.sample_local_queue(key, self.now)
        if again is not None:
            self._sampled_at[key] = self.now + _round_up_to_second(again)

    def update_workload(self, workload: Workload, *, by_eviction: bool = False) -> None:
        """Write a Workload, unless it is unchanged, and let the controllers reconcile it."""
        before = self.workloads.get(workload.key)
        if workload is before:
            return
        self.apply(workload)
        if before is not None:
            self.changes.record(before, workload, by_eviction=by_eviction)
            if workload.is_true(conditions.EVICTED) and not before.is_true(conditions.EVICTED):
                self._end_pods(before)
        self._workloads_due.add(workload.key)
        self._changed.add(workload.key)
        self._schedule_local_queues({workload.local_queue, (before or workload).local_queue})

    def _end_pods(self, evicted: Workload) -> None:
        """End the pods of an admitted workload, which takes the time in its annotation."""
        seconds = int(evicted.annotations.get(TERMINATION_SECONDS, 0)) if evicted.admitted else 0
        if seconds:
            self._pods_end[evicted.key] = self.now + seconds * SECOND
        self._ready.discard(evicted.key)

    def _drop_workload(self, key: str) -> None:
        gone = self.workloads.get(key)
        if gone is not None:
            self.changes.discard(key)
            self._pods_end.pop(key, None)
            self._reconcile_at.pop(key, None)
            self._ready.discard(key)
            self.delete(TABLES[Workload], key)
            self._schedule_local_queues([gone.local_queue])

    def _schedule_local_queues(self, local_queues: Iterable[str]) -> None:
        """Reconcile these LocalQueues a second after a change of their workloads."""
        if self._config.usage_based_fair_sharing is not None:
            for key in local_queues:
                if (LocalQueue, key) in self._objects:
                    self._local_queues_due.setdefault(key, self.now + SECOND)

    def _store(self, obj: Object, spec: Any) -> None:
        place = type(obj), obj.key
        old = self._objects.get(place)
        self._objects[place], self._specs[place] = obj, spec
        self.apply(obj)
        self._reconcile_affected(old, obj)
        if isinstance(obj, LocalQueue) and self._config.usage_based_fair_sharing is not None:
            self._reconcile_local_queue(obj.key)

    def _drop(self, kind: type[Object], key: str) -> None:
        old = self._objects.pop((kind, key))
        if kind is LocalQueue:
            self._sampled_at.pop(key, None)
            self._local_queues_due.pop(key, None)
        self.delete(TABLES[kind], key)
        self._reconcile_affected(old, None)

    def _reconcile_affected(self, old: Object | None, new: Object | None) -> None:
        """Reconcile the workloads of a queue that was created, changed or deleted.

        Kueue 0.19 workload_controller.go: workloadQueueHandler.
        """
        match old, new:
            case LocalQueue(), LocalQueue():
                matters = old.stop_policy != new.stop_policy
            case ClusterQueue(), ClusterQueue():
                matters = new.terminating or (old.checks, old.stop_policy) != (new.checks, new.stop_policy)
            case _:
                matters = True
        queue = new if new is not None else old
        if matters and isinstance(queue, LocalQueue | ClusterQueue):
            local = [queue] if isinstance(queue, LocalQueue) else self._objects_of_kind(LocalQueue)
            keys = {one.key for one in local if isinstance(queue, LocalQueue) or one.cluster_queue == queue.name}
            self._workloads_due.update(
                workload.key for workload in self.workloads.values() if workload.local_queue in keys
            )

    def _objects_of_kind(self, kind: type[Any]) -> Iterator[Any]:
        return (obj for (one, _), obj in self._objects.items() if one is kind)


def _due_keys(timers: Mapping[str, Time], now: Time) -> list[str]:
    return sorted(key for key, time in timers.items() if time <= now)


def _round_up_to_second(span: Span) -> Span:
    """A duration rounded up to a second, the resolution of the clock."""
    return -(-span // SECOND) * SECOND


_KINDS = {cls.__name__: cls for cls in TABLES}


class TimedConformanceRun:
    """A scenario with `seconds` that is being run, second by second. Mutates."""

    def __init__(self, scenario: Document) -> None:
        """Raises ValueError, TypeError or KeyError if the scenario is invalid."""
        self._scenario = scenario
        self._start = parse_time(scenario["start"])
        self._cluster = ConformanceCluster(timed_config(scenario), self._start)
        self._last_shown: tuple[Queues, Queues] = ({}, {})
        for document in creation_order(scenario["objects"]):
            self._create_object(document)
        self._cluster.requeue_inadmissible()

    def result(self) -> dict[str, Any]:
        """Run all steps; returns the scenario's name and an entry for each second with an event."""
        return {"name": self._scenario.get("name", ""), "cycles": list(self.entries())}

    def entries(self) -> Iterator[dict[str, Any]]:
        """Run all steps, and yield an entry of the result for each second with an event."""
        for number, step in enumerate(self._scenario.get("steps", ())):
            self._apply_step(step)
            changes = False
            for entry in self._run_seconds(step):
                changes = True
                yield {"step": number, **entry}
            if not changes and (entry := self._result_entry(None)):
                yield {"step": number, **entry}

    def _apply_step(self, step: Document) -> None:
        """Advance the clock, run what is due meanwhile, and apply the changes of a step."""
        cluster = self._cluster
        until = cluster.now + int(step.get("advanceSeconds", 0) * SECOND)
        while (due := cluster.next_timer) is not None and due <= until:
            cluster.now = max(cluster.now, due)
            cluster.handle_due()
            cluster.requeue_inadmissible()
        cluster.now = until
        for key in step.get("finish") or ():
            cluster.finish(key)
        for key in step.get("delete") or ():
            cluster.delete_object(Workload, key)
        for name in step.get("remove") or ():
            cluster.delete_object(*_parse_object_name(name))
        for document in step.get("apply") or ():
            obj = decode_object(document, now=cluster.now)
            if obj is not None:
                cluster.replace_object(obj, document.get("spec"))
        for answer in step.get("checks") or ():
            cluster.set_check_state(answer)
        for state in step.get("ready") or ():
            cluster.set_ready(state["workload"], ready=bool(state["ready"]))
        for document in step.get("create") or ():
            self._create_object(document)
        cluster.requeue_inadmissible()

    def _create_object(self, document: Document) -> None:
        obj = decode_object(document, now=self._cluster.now)
        if obj is not None:
            self._cluster.create(obj, document.get("spec"))

    def _run_seconds(self, step: Document) -> Iterator[dict[str, Any]]:
        """Run the seconds of a step; the clock jumps over seconds in which nothing can happen."""
        cluster, most = self._cluster, step.get("maxSeconds")
        last = None if most is None else cluster.now + int(most * SECOND)
        for _ in range(int(step.get("maxCycles", 0))):
            if not cluster.may_run_cycle and not self._skip_idle_seconds(last):
                return
            if last is not None and cluster.now + SECOND > last:
                return
            cluster.now += SECOND
            fired = cluster.handle_due()
            cluster.requeue_inadmissible()
            active, decided = cluster.pending_by_queue()[0], None
            if cluster.may_run_cycle:
                decided = cluster.run_cycle(cluster.now)
            cluster.run_controllers()
            cluster.requeue_inadmissible()
            idle = decided is not None and not (fired or cluster.changes or _has_admission_or_preemption(decided))
            idle = idle and active == cluster.pending_by_queue()[0]
            if entry := self._result_entry(decided, active):
                yield entry
            if idle and not self._skip_idle_seconds(last):
                return

    def _skip_idle_seconds(self, last: Time | None) -> bool:
        """Move the clock to one second before the next event; False if there is none up to `last`."""
        due = self._cluster.next_timer
        if due is None or (last is not None and due > last):
            return False
        self._cluster.now = max(self._cluster.now, due - SECOND)
        return True

    def _result_entry(self, decided: list[AdmissionDecision] | None, active: Queues | None = None) -> dict[str, Any]:
        """The events of this second; empty without any. `decided` is None if no cycle ran."""
        waiting, news = self._cluster.pending_by_queue(), self._cluster.changes
        self._cluster.changes = ChangeLogEntry()
        changes = _changes_entry(news, self._cluster.workloads)
        if decided is None and not any(changes.values()) and waiting == self._last_shown:
            return {}
        self._last_shown = waiting
        parts: dict[str, Any] = {
            "noCycle": decided is None,
            "activeBefore": active if decided is not None else {},
            "admitted": admissions_by_workload(decided or ()),
            "preempted": preemptions_by_workload(decided or ()),
            **changes,
            "activeAfter": waiting[0],
            "inadmissibleAfter": waiting[1],
        }
        at = (self._cluster.now - self._start) // SECOND
        return {"at": at, **{name: part for name, part in parts.items() if part}}


def _parse_object_name(name: str) -> tuple[type[Object], str]:
    """Kind and key of `Kind/name` or `Kind/namespace/name`."""
    kind, _, key = name.partition("/")
    if kind not in _KINDS or not key:
        raise ValueError(f"remove: {name!r} is not Kind/name or Kind/namespace/name of a known kind")
    return _KINDS[kind], key


def _has_admission_or_preemption(decided: list[AdmissionDecision]) -> bool:
    return any(isinstance(decision, Admit | Preempt) for decision in decided)


def _changes_entry(news: ChangeLogEntry, workloads: Mapping[str, Workload]) -> dict[str, Any]:
    pending = []
    for key in sorted(news.refused):
        says = workloads[key].condition(QUOTA_RESERVED)
        if says is not None and not says.status:
            pending.append({"workload": key, "reason": says.reason, "message": says.message})
    return {
        "evicted": [
            {"workload": key, "reason": reason, "message": message}
            for key, (reason, message) in sorted(news.evicted.items())
        ],
        "released": sorted(news.released),
        "admittedAfterChecks": sorted(news.admitted_after_checks),
        "pending": pending,
    }


class BareStepForm(StepForm, frozen=True, rename="camel"):
    """A step of a conformance scenario. The keys added here apply with `seconds` only."""

    remove: tuple[str, ...] = ()
    apply: tuple[Document, ...] = ()
    checks: tuple[Document, ...] = ()
    ready: tuple[Document, ...] = ()
    max_seconds: float | None = None


class BareForm(ScenarioForm, frozen=True, rename="camel"):
    """The format of a conformance scenario. Keys of `ScenarioForm` that admission does not need have no effect.

    With `seconds` Kueue's controllers take part, on a clock (`TimedConformanceRun`).
    """

    steps: tuple[BareStepForm, ...] = ()
    seconds: bool = False
    wait_for_pods_ready: Document | None = None


def no_problems(scenario: Document) -> Iterable[str]:
    """Report no problems: the default `find_problems` of `run_lines`."""
    return ()


def run_lines(
    lines: Iterable[str | bytes], source: str = "", find_problems: Callable[[Document], Iterable[str]] = no_problems
) -> Iterator[dict[str, Any]]:
    """Run scenarios, one JSON document per line, and give one result per line; an invalid line gives an `error`.

    An error names the line of `source`; `find_problems` are problems of a scenario found by the caller.
    """
    for number, line in enumerate(lines, start=1):
        if line.strip():
            result = _run_line(line, find_problems)
            if source and "error" in result:
                result["error"] = "; ".join(f"{source}:{number}: {one}" for one in result["error"].splitlines())
            yield result


def _unknown_keys(scenario: Document) -> Iterator[str]:
    for found in unknown_keys(scenario, BareForm):
        place = "".join(f"[{key}]" if isinstance(key, int) else f".{clean(key, 80)}" for key in found.path[:-1])
        where = f"{place.removeprefix('.')}: " if place else ""
        yield f"{where}unknown key {clean(repr(found.key), 80)}; {found.advice}"


def _run_line(line: str | bytes, find_problems: Callable[[Document], Iterable[str]]) -> dict[str, Any]:
    name = ""
    try:
        scenario = json.loads(line if isinstance(line, str) else line.decode())
        if not isinstance(scenario, dict):
            raise ValueError("a scenario is a JSON object")
        name = str(scenario.get("name", ""))
        if wrong := [*_unknown_keys(scenario), *find_problems(scenario)]:
            return {"name": name, "cycles": [], "error": "\n".join(wrong)}
        return run(scenario)
    except json.JSONDecodeError as error:
        problem = f"invalid JSON: {error}"
    except UnicodeDecodeError as error:
        problem = f"the line is not UTF-8: {error.reason} at position {error.start}"
    except RecursionError:
        problem = "the line is nested too deeply"
    except KeyError as error:
        problem = f"the scenario lacks {error}"
    except (ValueError, TypeError, AttributeError) as error:
        problem = f"the scenario's form is wrong: {error}"
    return {"name": name, "cycles": [], "error": problem}


def run(scenario: Document) -> dict[str, Any]:
    """Run one scenario. Raises ValueError, TypeError or KeyError if it is invalid."""
    if scenario.get("seconds"):
        return TimedConformanceRun(scenario).result()
    return ConformanceRun(scenario).result()


class ConformanceRun:
    """A scenario without `seconds` that is being run, cycle by cycle. Mutates."""

    def __init__(self, scenario: Document) -> None:
        self._scenario = scenario
        self.simulator = AdmissionSimulator(KueueSession(from_scenario(scenario)), parse_time(scenario["start"]))
        """The simulated cluster."""
        now = self.simulator.now
        documents = creation_order(scenario["objects"])
        objs = [obj for document in documents if (obj := decode_object(document, now=now)) is not None]
        for obj in objs:
            self.simulator.apply(obj)
        self._queues = sorted(obj.name for obj in objs if isinstance(obj, ClusterQueue))
        self.simulator.requeue_inadmissible()

    def result(self) -> dict[str, Any]:
        """Run all cycles; returns the scenario's name and an entry for each cycle."""
        return {"name": self._scenario.get("name", ""), "cycles": list(self.run_cycles())}

    def run_cycles(
        self, before: Callable[[AdmissionSimulator], object] = lambda rehearsal: None
    ) -> Iterator[dict[str, Any]]:
        """Run all cycles of all steps; `before` is called before each of them."""
        for number, step in enumerate(self._scenario.get("steps", ())):
            self._apply_step(step)
            for _ in range(int(step.get("maxCycles", 0))):
                if not self.simulator.session.has_heads:
                    break
                before(self.simulator)
                cycle, again = self._run_cycle()
                yield {"step": number, **cycle}
                if not again:
                    break

    def _apply_step(self, step: Document) -> None:
        """Advance the clock, and apply the changes of a step."""
        rehearsal = self.simulator
        rehearsal.now += int(step.get("advanceSeconds", 0) * SECOND)
        for key in step.get("finish") or ():
            rehearsal.finish(key)
        for key in step.get("delete") or ():
            rehearsal.delete("workloads", key)
        for document in step.get("create") or ():
            obj = decode_object(document, now=rehearsal.now)
            if obj is not None:
                rehearsal.apply(obj)
        rehearsal.requeue_inadmissible()

    def _run_cycle(self) -> tuple[dict[str, Any], bool]:
        """Run one cycle and apply its decisions; returns whether another cycle may decide something."""
        active, _ = self._pending_by_queue()
        decided = self.simulator.run_cycle()
        active_after, inadmissible_after = self._pending_by_queue()
        refused = sorted((d for d in decided if isinstance(d, Refuse)), key=lambda d: d.workload)
        parts: dict[str, Any] = {
            "activeBefore": active,
            "admitted": admissions_by_workload(decided),
            "preempted": preemptions_by_workload(decided),
            "activeAfter": active_after,
            "inadmissibleAfter": inadmissible_after,
            "pending": [{"workload": d.workload, "reason": d.reason, "message": d.message} for d in refused],
        }
        again = any(isinstance(d, Admit | Preempt) for d in decided) or active != active_after
        return {name: part for name, part in parts.items() if part}, again

    def _pending_by_queue(self) -> tuple[Queues, Queues]:
        """Active and inadmissible workloads by ClusterQueue."""
        active: Queues = {}
        inadmissible: Queues = {}
        for name in self._queues:
            for pending in self.simulator.session.pending_workloads(name):
                (inadmissible if pending.inadmissible else active).setdefault(name, []).append(pending.workload.key)
        return sorted_queues(active), sorted_queues(inadmissible)
