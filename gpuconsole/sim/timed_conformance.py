"""Runs a conformance scenario with `seconds: true`: second by second, with Kueue's controllers and their timers.

Scenarios and results have the format of the conformance data. A result has an entry for each second with a cycle or
another event.
"""

from collections.abc import Iterator
from typing import Any

from gpuconsole.model.clock import SECOND, Time, parse_time
from gpuconsole.model.decisions import AdmissionDecision, Admit, Preempt
from gpuconsole.model.manifests import decode_object
from gpuconsole.model.objects import TABLES, Object
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue.conditions import QUOTA_RESERVED
from gpuconsole.sim.conformance_cluster import ConformanceCluster, News, timed_config
from gpuconsole.sim.conformance_form import Document, Queues, admitted_form, creation_order, preempted_form

_KINDS = {kind.__name__: kind for kind in TABLES}


class TimedConformanceRun:
    """A timed scenario that is being run. Mutates."""

    def __init__(self, scenario: Document) -> None:
        """Raises ValueError, TypeError or KeyError if the scenario is invalid."""
        self._scenario = scenario
        self._start = parse_time(scenario["start"])
        self._cluster = ConformanceCluster(timed_config(scenario), self._start)
        self._shown: tuple[Queues, Queues] = ({}, {})
        for document in creation_order(scenario["objects"]):
            self._create(document)
        self._cluster.wake()

    def result(self) -> dict[str, Any]:
        """Run all steps; returns the scenario's name and its entries."""
        return {"name": self._scenario.get("name", ""), "cycles": list(self.entries())}

    def entries(self) -> Iterator[dict[str, Any]]:
        """Entries of all seconds with events, for all steps."""
        for number, step in enumerate(self._scenario.get("steps", ())):
            self._begin(step)
            changes = False
            for entry in self._seconds(step):
                changes = True
                yield {"step": number, **entry}
            if not changes and (entry := self._entry(None)):
                yield {"step": number, **entry}

    def _begin(self, step: Document) -> None:
        """Advance the clock, run what is due meanwhile, and apply the changes of a step."""
        cluster = self._cluster
        until = cluster.now + int(step.get("advanceSeconds", 0) * SECOND)
        while (due := cluster.next_timer) is not None and due <= until:
            cluster.now = max(cluster.now, due)
            cluster.fire()
            cluster.wake()
        cluster.now = until
        for key in step.get("finish") or ():
            cluster.finish(key)
        for key in step.get("delete") or ():
            cluster.delete(Workload, key)
        for name in step.get("remove") or ():
            cluster.delete(*_named(name))
        for document in step.get("apply") or ():
            obj = decode_object(document, now=cluster.now)
            if obj is not None:
                cluster.apply(obj, document.get("spec"))
        for answer in step.get("checks") or ():
            cluster.answer(answer)
        for state in step.get("ready") or ():
            cluster.set_ready(state["workload"], ready=bool(state["ready"]))
        for document in step.get("create") or ():
            self._create(document)
        cluster.wake()

    def _create(self, document: Document) -> None:
        obj = decode_object(document, now=self._cluster.now)
        if obj is not None:
            self._cluster.create(obj, document.get("spec"))

    def _seconds(self, step: Document) -> Iterator[dict[str, Any]]:
        """Run the seconds of a step; the clock jumps over seconds in which nothing can happen."""
        cluster, most = self._cluster, step.get("maxSeconds")
        last = None if most is None else cluster.now + int(most * SECOND)
        for _ in range(int(step.get("maxCycles", 0))):
            if not cluster.may_run_cycle and not self._jump(last):
                return
            if last is not None and cluster.now + SECOND > last:
                return
            cluster.now += SECOND
            fired = cluster.fire()
            cluster.wake()
            active, decided = cluster.waiting()[0], None
            if cluster.may_run_cycle:
                decided = cluster.run_cycle()
            cluster.settle()
            cluster.wake()
            idle = decided is not None and not (fired or cluster.news or _moved(decided))
            idle = idle and active == cluster.waiting()[0]
            if entry := self._entry(decided, active):
                yield entry
            if idle and not self._jump(last):
                return

    def _jump(self, last: Time | None) -> bool:
        """Move the clock to one second before the next event; False if there is none up to `last`."""
        due = self._cluster.next_timer
        if due is None or (last is not None and due > last):
            return False
        self._cluster.now = max(self._cluster.now, due - SECOND)
        return True

    def _entry(self, decided: list[AdmissionDecision] | None, active: Queues | None = None) -> dict[str, Any]:
        """The events of this second; empty without any. `decided` is None if no cycle ran."""
        waiting, news = self._cluster.waiting(), self._cluster.news
        self._cluster.news = News()
        changes = _changes_of(news, self._cluster.workloads)
        if decided is None and not any(changes.values()) and waiting == self._shown:
            return {}
        self._shown = waiting
        parts: dict[str, Any] = {
            "noCycle": decided is None,
            "activeBefore": active if decided is not None else {},
            "admitted": admitted_form(decided or ()),
            "preempted": preempted_form(decided or ()),
            **changes,
            "activeAfter": waiting[0],
            "inadmissibleAfter": waiting[1],
        }
        at = (self._cluster.now - self._start) // SECOND
        return {"at": at, **{name: part for name, part in parts.items() if part}}


def _named(name: str) -> tuple[type[Object], str]:
    """Kind and key of `Kind/name` or `Kind/namespace/name`."""
    kind, _, key = name.partition("/")
    if kind not in _KINDS or not key:
        raise ValueError(f"remove: {name!r} is not Kind/name or Kind/namespace/name of a known kind")
    return _KINDS[kind], key


def _moved(decided: list[AdmissionDecision]) -> bool:
    return any(isinstance(decision, Admit | Preempt) for decision in decided)


def _changes_of(news: News, workloads: dict[str, Workload]) -> dict[str, Any]:
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
