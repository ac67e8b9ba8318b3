"""Applies the scheduler's decisions to Workload objects; shared by all callers that carry decisions out.

Every function is pure. Who carries decisions out says when quota is free again: at once, or when pods are gone.
"""

from collections.abc import Iterable

from msgspec.structs import replace

from gpuconsole.model.clock import Time
from gpuconsole.model.decisions import AdmissionDecision, Admit, Evict, Preempt
from gpuconsole.model.queues import ClusterQueue
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue import conditions, slices
from gpuconsole.scheduling.kueue.checks import checks_for, synced


def victims_of(decisions: Iterable[AdmissionDecision]) -> list[Preempt | Evict]:
    """Those that lose their place in a cycle, by name: they go when all else that it decided is carried out."""
    victims = [decision for decision in decisions if isinstance(decision, Preempt | Evict)]
    return sorted(victims, key=lambda victim: victim.workload)


def reserved(workload: Workload, decision: Admit, queue: ClusterQueue | None, now: Time) -> Workload:
    """The workload with its quota, and with the checks that its ClusterQueue asks it to pass."""
    given = conditions.reserve(workload, decision.admission, now)
    names = checks_for(given, queue) if queue is not None else ()
    return replace(given, checks=synced(given.checks, names, now))


def replaced(old: Workload, new: Workload, now: Time) -> Workload:
    """A slice of an elastic job ends, for `new` took over from it."""
    return conditions.finish(old, slices.REPLACED, slices.replacement_message(new), now)


def evicted(workload: Workload, decision: Preempt | Evict, now: Time) -> Workload:
    """The victim, marked; it holds its quota until `conditions.release`."""
    if isinstance(decision, Preempt):
        return conditions.evict(workload, conditions.PREEMPTED, decision.message, now, decision.rule)
    return conditions.evict(workload, decision.reason, decision.message, now)
