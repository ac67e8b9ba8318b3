"""Runs a conformance scenario: Kueue's decisions cycle by cycle, and nothing else.

No controllers, pods or run times: the clock moves as the scenario says, admissions and evictions take effect at once,
inadmissible workloads are requeued at once. Scenarios and results have the format of the conformance data.

Runs a conformance scenario with `seconds: true`: second by second, with Kueue's controllers and their timers.

Scenarios and results have the format of the conformance data. A result has an entry for each second with a cycle or
another event.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from gpuconsole.model.clock import SECOND, Time, parse_time
from gpuconsole.model.decisions import AdmissionDecision, Admit, Preempt, Refuse
from gpuconsole.model.documents.strict_decode import unknown_keys
from gpuconsole.model.manifests import decode_object
from gpuconsole.model.objects import TABLES, Object
from gpuconsole.model.queues import ClusterQueue
from gpuconsole.model.text import clean
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue.conditions import QUOTA_RESERVED
from gpuconsole.scheduling.kueue.config import from_scenario
from gpuconsole.scheduling.kueue.session import KueueSession
from gpuconsole.sim.admission_simulator import AdmissionSimulator
from gpuconsole.sim.conformance_cluster import (
    ConformanceCluster,
    Document,
    News,
    Queues,
    admitted_form,
    creation_order,
    preempted_form,
    sorted_queues,
    timed_config,
)
from gpuconsole.sim.scenario_form import ScenarioForm, StepForm

_KINDS = {cls.__name__: cls for cls in TABLES}


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


class BareStepForm(StepForm, frozen=True, rename="camel"):
    """A step of a conformance scenario. The keys added here apply with `seconds` only."""

    remove: tuple[str, ...] = ()
    apply: tuple[Document, ...] = ()
    checks: tuple[Document, ...] = ()
    ready: tuple[Document, ...] = ()
    max_seconds: float | None = None


class BareForm(ScenarioForm, frozen=True, rename="camel"):
    """The format of a conformance scenario. Keys of `ScenarioForm` that admission does not need have no effect.

    With `seconds` Kueue's controllers take part, on a clock (`timed_conformance`).
    """

    steps: tuple[BareStepForm, ...] = ()
    seconds: bool = False
    wait_for_pods_ready: Document | None = None


def no_objections(scenario: Document) -> Iterable[str]:
    """The default of `run_lines`: no further problems."""
    return ()


def run_lines(
    lines: Iterable[str | bytes], source: str = "", objections: Callable[[Document], Iterable[str]] = no_objections
) -> Iterator[dict[str, Any]]:
    """Run scenarios, one JSON document per line, and give one result per line; an invalid line gives an `error`.

    An error names the line of `source`; `objections` are problems of a scenario found by the caller.
    """
    for number, line in enumerate(lines, start=1):
        if line.strip():
            result = _run_line(line, objections)
            if source and "error" in result:
                result["error"] = "; ".join(f"{source}:{number}: {one}" for one in result["error"].splitlines())
            yield result


def _unknown_keys(scenario: Document) -> Iterator[str]:
    for found in unknown_keys(scenario, BareForm):
        place = "".join(f"[{key}]" if isinstance(key, int) else f".{clean(key, 80)}" for key in found.path[:-1])
        where = f"{place.removeprefix('.')}: " if place else ""
        yield f"{where}unknown key {clean(repr(found.key), 80)}; {found.advice}"


def _run_line(line: str | bytes, objections: Callable[[Document], Iterable[str]]) -> dict[str, Any]:
    name = ""
    try:
        scenario = json.loads(line if isinstance(line, str) else line.decode())
        if not isinstance(scenario, dict):
            raise ValueError("a scenario is a JSON object")
        name = str(scenario.get("name", ""))
        if wrong := [*_unknown_keys(scenario), *objections(scenario)]:
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
    """A scenario that is being run. Mutates."""

    def __init__(self, scenario: Document) -> None:
        self._scenario = scenario
        self.rehearsal = AdmissionSimulator(KueueSession(from_scenario(scenario)), parse_time(scenario["start"]))
        """The simulated cluster."""
        now = self.rehearsal.now
        documents = creation_order(scenario["objects"])
        objs = [obj for document in documents if (obj := decode_object(document, now=now)) is not None]
        for obj in objs:
            self.rehearsal.apply(obj)
        self._queues = sorted(obj.name for obj in objs if isinstance(obj, ClusterQueue))
        self.rehearsal.wake()

    def result(self) -> dict[str, Any]:
        """Run all cycles; returns the scenario's name and its cycles."""
        return {"name": self._scenario.get("name", ""), "cycles": list(self.cycles())}

    def cycles(
        self, before: Callable[[AdmissionSimulator], object] = lambda rehearsal: None
    ) -> Iterator[dict[str, Any]]:
        """All cycles of all steps; `before` is called before each of them."""
        for number, step in enumerate(self._scenario.get("steps", ())):
            self._begin(step)
            for _ in range(int(step.get("maxCycles", 0))):
                if not self.rehearsal.session.has_active:
                    break
                before(self.rehearsal)
                cycle, again = self._run_cycle()
                yield {"step": number, **cycle}
                if not again:
                    break

    def _begin(self, step: Document) -> None:
        """Advance the clock, and apply the changes of a step."""
        rehearsal = self.rehearsal
        rehearsal.now += int(step.get("advanceSeconds", 0) * SECOND)
        for key in step.get("finish") or ():
            rehearsal.finish(key)
        for key in step.get("delete") or ():
            rehearsal.delete("workloads", key)
        for document in step.get("create") or ():
            obj = decode_object(document, now=rehearsal.now)
            if obj is not None:
                rehearsal.apply(obj)
        rehearsal.wake()

    def _run_cycle(self) -> tuple[dict[str, Any], bool]:
        """Run one cycle and apply its decisions; returns whether another cycle may decide something."""
        active, _ = self._waiting()
        decided = self.rehearsal.cycle()
        active_after, inadmissible_after = self._waiting()
        refused = sorted((d for d in decided if isinstance(d, Refuse)), key=lambda d: d.workload)
        parts: dict[str, Any] = {
            "activeBefore": active,
            "admitted": admitted_form(decided),
            "preempted": preempted_form(decided),
            "activeAfter": active_after,
            "inadmissibleAfter": inadmissible_after,
            "pending": [{"workload": d.workload, "reason": d.reason, "message": d.message} for d in refused],
        }
        again = any(isinstance(d, Admit | Preempt) for d in decided) or active != active_after
        return {name: part for name, part in parts.items() if part}, again

    def _waiting(self) -> tuple[Queues, Queues]:
        """Active and inadmissible workloads by ClusterQueue."""
        active: Queues = {}
        inadmissible: Queues = {}
        for name in self._queues:
            for pending in self.rehearsal.session.pending(name):
                (inadmissible if pending.inadmissible else active).setdefault(name, []).append(pending.workload.key)
        return sorted_queues(active), sorted_queues(inadmissible)
