"""Objects that an answer depends on and that are not visible, so that the engine cannot decide."""

from enum import StrEnum
from typing import TYPE_CHECKING

from gpuconsole.insight.derived import memoized
from gpuconsole.model.clock import MINUTE, SECOND, Span, format_span
from gpuconsole.model.cluster import Namespace, Node, Pod
from gpuconsole.model.kai import KaiQueue
from gpuconsole.model.labels import LabelSelector
from gpuconsole.model.objects import TABLES
from gpuconsole.model.queues import AdmissionCheck, ClusterQueue, Cohort, LocalQueue, Topology
from gpuconsole.model.snapshot import ALWAYS, QueueAssumptions, Snapshot
from gpuconsole.model.volcano import VolcanoQueue
from gpuconsole.model.workloads import Workload
from gpuconsole.sim.policy import SimPolicy
from gpuconsole.sim.run_times import MEASURED, Latencies, random_for

if TYPE_CHECKING:
    from gpuconsole.sim.engine import Simulation

QUOTA = (Workload, ClusterQueue, Cohort)
"""Kinds of objects from which the used quota is computed."""
TURNS = (*QUOTA, LocalQueue, VolcanoQueue, KaiQueue)
"""Kinds of objects that decide the admission order of each queue."""
PLACES = (Node, Pod)
"""Kinds of objects that decide which GPUs are allocated."""


_DRAWS = 2000
"""Samples of the time from eviction to quota release, for its median and p99."""
_ROOMS = tuple(TABLES[kind] for kind in PLACES)


class IdleBound(StrEnum):
    """Accuracy of counts of idle GPUs where some nodes or pods could not be parsed."""

    EXACT = "exact"
    AT_LEAST = "at least"
    """Some nodes are unknown and may have idle GPUs, too."""
    AT_MOST = "at most"
    """Some pods are unknown and may use GPUs that look idle."""


def bound_of_idle(snapshot: Snapshot) -> IdleBound | None:
    """Return whether counts of idle GPUs are exact or only a bound.

    None if they are not even a bound: nodes and pods could not be parsed, or could not be listed at all.
    """
    if not _partly(snapshot):
        return None
    match sorted({gap.table for gap in snapshot.seen.gaps if gap.table in _ROOMS}):
        case []:
            return IdleBound.EXACT
        case ["nodes"]:
            return IdleBound.AT_LEAST
        case ["pods"]:
            return IdleBound.AT_MOST
        case _:
            return None


def missing_for_admission(snapshot: Snapshot, *besides: type) -> tuple[str, ...]:
    """Return the missing objects without which Kueue's next decision is unknown; empty if all are visible.

    `besides` are further kinds that the answer depends on.
    """
    seen = snapshot.seen
    return seen.missing_reasons(*besides, *_decisive(snapshot)) if seen.gaps else ()


def missing_for_forecast(snapshot: Snapshot, *besides: type) -> tuple[str, ...]:
    """Return the missing objects that a forecast needs: `missing_for_admission`, and queues of Volcano and KAI in
    use.
    """
    return missing_for_admission(snapshot, *besides, *_others(snapshot)) if snapshot.seen.gaps else ()


def missing_for_placement(snapshot: Snapshot) -> tuple[str, ...]:
    """Return which nodes or pods could not be parsed, if nothing else that a forecast needs is missing.

    Otherwise, and if all are visible, it is empty.
    """
    if missing_for_forecast(snapshot) or not _partly(snapshot):
        return ()
    return snapshot.seen.missing_reasons(*PLACES)


def _partly(snapshot: Snapshot) -> bool:
    """True if all nodes and pods are visible except some that could not be parsed."""
    return all(gap.partly for gap in snapshot.seen.gaps if gap.table in _ROOMS)


@memoized("jobs", "kai_pod_groups")
def _others(snapshot: Snapshot) -> tuple[type, ...]:
    volcano = any(job.volcano is not None for job in snapshot.jobs.all())
    return (*((VolcanoQueue,) if volcano else ()), *((KaiQueue,) if len(snapshot.kai_pod_groups) else ()))


@memoized("cluster_queues", "flavors")
def _decisive(snapshot: Snapshot) -> tuple[type, ...]:
    """The kinds that Kueue's decisions depend on in this cluster, by the queues and flavors that are visible."""
    queues, flavors = snapshot.cluster_queues, snapshot.flavors
    wanted = [*ALWAYS]
    if any(queue.cohort for queue in queues.all()):
        wanted.append(Cohort)
    if any(queue.checks for queue in queues.all()):
        wanted.append(AdmissionCheck)
    if any(flavor.topology for flavor in flavors.all()):
        wanted += [Topology, *PLACES]
    if any(queue.namespace_selector not in (None, LabelSelector()) for queue in queues.all()):
        wanted.append(Namespace)
    return tuple(wanted)


def run_times(policy: SimPolicy) -> tuple[str, ...]:
    """Describe, in sentences, which run times a forecast assumes if they are not estimated from history."""
    if policy.run_times is not None:
        return ()
    about = "about " if policy.durations.sigma else ""
    lasts = format_span(policy.durations.median)
    known = "run times are not estimated from history"
    return (f"{known}: a workload without a known duration runs {about}{lasts}, twice that if it already ran longer",)


def queue_assumptions(simulation: "Simulation") -> tuple[str, ...]:
    """Describe what a forecast assumes about Kueue's internal queues, which the API does not show."""
    return in_sentences(simulation.session.assumptions) if simulation.session is not None else ()


def in_sentences(assumptions: QueueAssumptions) -> tuple[str, ...]:
    """Describe which workloads are assumed to be inadmissible or requeued; empty if there are none."""
    counts = (
        (assumptions.inadmissible, "inadmissible: nothing"),
        (assumptions.tried_again, "requeued: something"),
    )
    return tuple(_assumed(count, what) for count, what in counts if count)


def _assumed(count: int, what: str) -> str:
    are, its, them = ("1 workload is", "its", "it") if count == 1 else (f"{count:,} workloads are", "their", "them")
    return f"{are} assumed to be {what} in {its} cohort tree has changed since Kueue refused {them}"


def latency_assumption(latencies: Latencies | None) -> str:
    """Describe the controller latencies of a simulation as one of the assumptions of an answer."""
    if latencies is None:
        return "no controller latencies (latencies: none)"
    random = random_for(0, "quota release")
    steps = (latencies.job_suspend, latencies.status_update, latencies.workload_reconcile)
    released = sorted(sum(step.sample(random) for step in steps) for _ in range(_DRAWS))
    median, most = (_tenths(released[_DRAWS * percent // 100]) for percent in (50, 99))
    source = "as measured with Kueue 0.19.2" if latencies == MEASURED else "set by the scenario"
    return (
        f"controller latencies {source}: from the eviction of a Job to its quota release: median {median}, p99 {most}"
    )


def _tenths(span: Span) -> str:
    return f"{span / SECOND:.1f}s" if SECOND <= span < MINUTE else format_span(span)


def not_known(lacking: tuple[str, ...]) -> str:
    """Return the end of a sentence, `unknown: …`, that names the missing objects."""
    return f"unknown: {'; '.join(lacking)}"
