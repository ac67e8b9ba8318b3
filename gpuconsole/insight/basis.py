"""What of that which decides is not seen: where anything lacks, what the engine makes of the rest says nothing."""

from enum import StrEnum
from typing import TYPE_CHECKING

from gpuconsole.insight.once import once
from gpuconsole.model.clock import MINUTE, SECOND, Span, format_span
from gpuconsole.model.cluster import Namespace, Node, Pod
from gpuconsole.model.kai import KaiQueue
from gpuconsole.model.labels import LabelSelector
from gpuconsole.model.objects import TABLES
from gpuconsole.model.queues import AdmissionCheck, ClusterQueue, Cohort, LocalQueue, Topology
from gpuconsole.model.seen import ALWAYS, QueueAssumptions
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.volcano import VolcanoQueue
from gpuconsole.model.workloads import Workload
from gpuconsole.sim.chance import draw
from gpuconsole.sim.latencies import MEASURED, Latencies
from gpuconsole.sim.policy import SimPolicy

if TYPE_CHECKING:
    from gpuconsole.sim.engine import Simulation

QUOTA = (Workload, ClusterQueue, Cohort)
"""Who holds how much of what there is."""
TURNS = (*QUOTA, LocalQueue, VolcanoQueue, KaiQueue)
"""Whose turn is next in each queue."""
PLACES = (Node, Pod)
"""Who has which GPUs."""


_DRAWS = 2000
"""Of the time from eviction to quota release, for its quantiles in words."""
_ROOMS = tuple(TABLES[kind] for kind in PLACES)


class Bound(StrEnum):
    """What numbers of idle GPUs are worth where some nodes or pods make no sense."""

    EXACT = "exact"
    AT_LEAST = "at least"
    """Not every node is seen: others may have idle GPUs, too."""
    AT_MOST = "at most"
    """Not every pod is seen: it may have any GPU that nobody is seen to have."""


def bound_of_idle(snapshot: Snapshot) -> Bound | None:
    """Which it is; None where it is neither, or nobody knows how much is not seen."""
    if not _partly(snapshot):
        return None
    match sorted({gap.table for gap in snapshot.seen.gaps if gap.table in _ROOMS}):
        case []:
            return Bound.EXACT
        case ["nodes"]:
            return Bound.AT_LEAST
        case ["pods"]:
            return Bound.AT_MOST
        case _:
            return None


def undecidable(snapshot: Snapshot, *besides: type) -> tuple[str, ...]:
    """Why nobody here can say what Kueue decides next, by what is missing; nothing where all of that is seen.

    `besides` are kinds that the answer rests on as well.
    """
    seen = snapshot.seen
    return seen.lacking(*besides, *_decisive(snapshot)) if seen.gaps else ()


def unforeseeable(snapshot: Snapshot, *besides: type) -> tuple[str, ...]:
    """Why nobody here can say what comes, where other schedulers than Kueue have queues, too; see `undecidable`."""
    return undecidable(snapshot, *besides, *_others(snapshot)) if snapshot.seen.gaps else ()


def unplaceable(snapshot: Snapshot) -> tuple[str, ...]:
    """What is not seen where that is some nodes or pods that make no sense, and nothing that quota depends on.

    Nothing where all are seen, and where more is missing.
    """
    if unforeseeable(snapshot) or not _partly(snapshot):
        return ()
    return snapshot.seen.lacking(*PLACES)


def _partly(snapshot: Snapshot) -> bool:
    """Whether all nodes and pods are seen but some that make no sense."""
    return all(gap.partly for gap in snapshot.seen.gaps if gap.table in _ROOMS)


@once("jobs", "kai_pod_groups")
def _others(snapshot: Snapshot) -> tuple[type, ...]:
    volcano = any(job.volcano is not None for job in snapshot.jobs.all())
    return (*((VolcanoQueue,) if volcano else ()), *((KaiQueue,) if len(snapshot.kai_pod_groups) else ()))


@once("cluster_queues", "flavors")
def _decisive(snapshot: Snapshot) -> tuple[type, ...]:
    """Those of DECISIVE that Kueue's decisions depend on here, as far as the queues and flavors that are seen tell."""
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
    """What a future takes for granted about how long work of a cluster lasts that others run."""
    if policy.run_times is not None:
        return ()
    about = "about " if policy.durations.sigma else ""
    lasts = format_span(policy.durations.median)
    told = f"work lasts {about}{lasts} from its start where nothing says how long, twice that if it runs longer"
    return (f"{told}: nothing of the past is asked",)


def queue_assumptions(simulation: "Simulation") -> tuple[str, ...]:
    """What a future assumes of Kueue's queues in the live cluster that it goes on from, in sentences."""
    return in_sentences(simulation.session.assumptions) if simulation.session is not None else ()


def in_sentences(assumptions: QueueAssumptions) -> tuple[str, ...]:
    """What is assumed of workloads that Kueue refused; nothing where there are none."""
    told = (
        (assumptions.inadmissible, "inadmissible: nothing"),
        (assumptions.tried_again, "requeued: something"),
    )
    return tuple(_assumed(count, what) for count, what in told if count)


def _assumed(count: int, what: str) -> str:
    are, its, them = ("1 workload is", "its", "it") if count == 1 else (f"{count:,} workloads are", "their", "them")
    return f"{are} assumed to be {what} in {its} cohort tree has changed since Kueue refused {them}"


def latency_assumption(latencies: Latencies | None) -> str:
    """Describe the controller latencies of a simulation as one of the assumptions of an answer."""
    if latencies is None:
        return "no controller latencies (latencies: none)"
    random = draw(0, "quota release")
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
    """The end of a sentence on what nobody here can know."""
    return f"not known: {'; '.join(lacking)}"
