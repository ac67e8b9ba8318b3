"""The bare mode of a scenario: Kueue's decisions cycle by cycle, with nothing else happening.

No controllers, pods or run times: the clock moves as the scenario says, admissions and evictions take effect at once,
parked workloads wake at once. The form of scenarios and results is that of the conformance data.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from gpuconsole.model.clock import SECOND, Time, parse_time
from gpuconsole.model.decisions import AdmissionDecision, Admit, Evict, KeepWaiting, Preempt, Refuse
from gpuconsole.model.manifests import decode_object
from gpuconsole.model.objects import TABLES, Object
from gpuconsole.model.quantity import format_quantity
from gpuconsole.model.queues import ClusterQueue
from gpuconsole.model.workloads import PodSetAssignment, Workload
from gpuconsole.scheduling.kueue import conditions, slices
from gpuconsole.scheduling.kueue.config import from_scenario
from gpuconsole.scheduling.kueue.session import Session

Document = Mapping[str, Any]
Queues = dict[str, list[str]]

_CREATION_ORDER = list(TABLES)


def run_lines(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Run scenarios, one JSON document a line, and give one result a line; a bad line gives an `error`."""
    for line in lines:
        if line.strip():
            yield _run_line(line)


def _run_line(line: str) -> dict[str, Any]:
    name = ""
    try:
        scenario = json.loads(line)
        if not isinstance(scenario, dict):
            raise ValueError("a scenario is a JSON object")
        name = str(scenario.get("name", ""))
        return run(scenario)
    except json.JSONDecodeError as error:
        problem = f"the line is no JSON: {error}"
    except KeyError as error:
        problem = f"the scenario lacks {error}"
    except (ValueError, TypeError, AttributeError) as error:
        problem = f"the scenario's form is wrong: {error}"
    return {"name": name, "cycles": [], "error": problem}


def run(scenario: Document) -> dict[str, Any]:
    """Run one scenario. Raises ValueError, TypeError or KeyError if its form is wrong."""
    return BareRun(scenario).result()


class BareRun:
    """One scenario on its way. Mutates."""

    def __init__(self, scenario: Document) -> None:
        self._scenario = scenario
        self._now: Time = parse_time(scenario["start"])
        self._session = Session(from_scenario(scenario))
        self._workloads: dict[str, Workload] = {}
        things = [thing for d in scenario["objects"] if (thing := decode_object(d, now=self._now)) is not None]
        for thing in sorted(things, key=lambda thing: _CREATION_ORDER.index(type(thing))):
            self._apply(thing)
        self._queues = sorted(thing.name for thing in things if isinstance(thing, ClusterQueue))
        self._session.wake(self._now)

    def result(self) -> dict[str, Any]:
        cycles = [
            cycle
            for number, step in enumerate(self._scenario.get("steps", ()))
            for cycle in self._run_step(number, step)
        ]
        return {"name": self._scenario.get("name", ""), "cycles": cycles}

    def _apply(self, thing: Object) -> None:
        if isinstance(thing, Workload):
            self._workloads[thing.key] = thing
        self._session.apply(thing, self._now)

    def _run_step(self, number: int, step: Document) -> Iterator[dict[str, Any]]:
        self._now += int(step.get("advanceSeconds", 0) * SECOND)
        for key in step.get("finish") or ():
            if key in self._workloads and not self._workloads[key].finished:
                self._apply(conditions.finish(self._workloads[key], "Succeeded", "Job finished", self._now))
        for key in step.get("delete") or ():
            self._workloads.pop(key, None)
            self._session.delete("workloads", key, self._now)
        for document in step.get("create") or ():
            thing = decode_object(document, now=self._now)
            if thing is not None:
                self._apply(thing)
        self._session.wake(self._now)
        for _ in range(int(step.get("maxCycles", 0))):
            if not self._session.has_active:
                return
            cycle, again = self._run_cycle()
            yield {"step": number, **cycle}
            if not again:
                return

    def _run_cycle(self) -> tuple[dict[str, Any], bool]:
        """One cycle with its consequences, and whether another one may decide something."""
        active, _ = self._waiting()
        self._now += SECOND
        decisions = self._session.run_cycle(self._now)
        refused = self._carry_out(decisions)
        self._session.wake(self._now)
        active_after, parked_after = self._waiting()
        admitted = sorted((d for d in decisions if isinstance(d, Admit)), key=lambda d: d.workload)
        preempted = sorted((d for d in decisions if isinstance(d, Preempt)), key=lambda d: d.workload)
        parts: dict[str, Any] = {
            "activeBefore": active,
            "admitted": [_admitted(decision) for decision in admitted],
            "preempted": [
                {"workload": decision.workload, "reason": decision.rule.value, "message": decision.message}
                for decision in preempted
            ],
            "activeAfter": active_after,
            "inadmissibleAfter": parked_after,
            "pending": refused,
        }
        again = bool(admitted or preempted) or active != active_after
        return {name: part for name, part in parts.items() if part}, again

    def _carry_out(self, decisions: list[AdmissionDecision]) -> list[dict[str, str]]:
        """Let decisions take effect, evictions last; returns what refused workloads are told that is new."""
        refused, victims = [], []
        for decision in decisions:
            workload = self._workloads[decision.workload]
            match decision:
                case Admit():
                    reserved = conditions.reserve(workload, decision.admission, self._now)
                    self._apply(conditions.admit(reserved, self._now, granular=self._session.config.granular))
                    if decision.replaces:
                        old, message = self._workloads[decision.replaces], slices.replacement_message(reserved)
                        self._apply(conditions.finish(old, slices.REPLACED, message, self._now))
                case Refuse():
                    told = conditions.take_refusal(
                        workload, decision, self._now, granular=self._session.config.granular
                    )
                    if told is not workload:
                        refused.append(
                            {"workload": workload.key, "reason": decision.reason, "message": decision.message}
                        )
                        self._apply(told)
                case Preempt() | Evict():
                    victims.append(decision)
                case KeepWaiting():
                    pass
        for victim in sorted(victims, key=lambda victim: victim.workload):
            workload = self._workloads[victim.workload]
            reason, rule = ("Preempted", victim.rule) if isinstance(victim, Preempt) else (victim.reason, None)
            evicted = conditions.evict(workload, reason, victim.message, self._now, rule)
            self._apply(conditions.release(evicted, self._now, granular=self._session.config.granular))
        return sorted(refused, key=lambda told: told["workload"])

    def _waiting(self) -> tuple[Queues, Queues]:
        """Active and parked workloads by ClusterQueue."""
        active: Queues = {}
        parked: Queues = {}
        for name in self._queues:
            for pending in self._session.pending(name):
                (parked if pending.parked else active).setdefault(name, []).append(pending.workload.key)
        return _sorted(active), _sorted(parked)


def _sorted(queues: Queues) -> Queues:
    return {name: sorted(keys) for name, keys in queues.items()}


def _admitted(decision: Admit) -> dict[str, Any]:
    return {
        "workload": decision.workload,
        "clusterQueue": decision.admission.cluster_queue,
        "podSets": [_pod_set(assignment) for assignment in decision.admission.pod_sets],
    }


def _pod_set(assignment: PodSetAssignment) -> dict[str, Any]:
    result: dict[str, Any] = {
        "name": assignment.name,
        "count": assignment.count,
        "flavors": dict(assignment.flavors),
        "usage": {name: format_quantity(name, amount) for name, amount in assignment.usage.items()},
    }
    if assignment.topology:
        result["topology"] = [{"values": list(domain.values), "count": domain.count} for domain in assignment.topology]
    return result
