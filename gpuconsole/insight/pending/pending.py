"""Explanation of why a workload, job or pod is pending: headline, scheduler's message, arithmetic and remedies.

It is read from the objects and messages of a Snapshot (`explain`); `why` adds an attempt of the admission engine.
`undivided` covers pod counts that are not a multiple of the slice size: Kueue 0.19 admits all pods, but places only
whole slices, and the scheduling gate of the remaining pods is never removed (kueue#15277).
"""

from collections.abc import Callable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.insight.data_gaps import missing_for_admission, not_known
from gpuconsole.insight.index.demand import held
from gpuconsole.insight.index.pods import pods_by_node, pods_of_gang, pods_run
from gpuconsole.insight.index.queues import position
from gpuconsole.insight.pending.reasons import (
    ParsedReason,
    PendingReason,
    dominant,
    flavor_groups,
    pending_code,
    read_kueue,
)
from gpuconsole.insight.pending.shortage import (
    KUEUE,
    MOST_HOLDERS,
    Advice,
    PendingExplanation,
    QuotaBreakdown,
    Remedy,
    admission_obstacle,
    advise,
    describe_holder,
    holders,
    not_waiting,
    remedies,
    shortages,
)
from gpuconsole.insight.pending.unscheduled_pods import (
    explain_failing,
    explain_podless,
    explain_pods,
    explain_refused,
    explain_refused_claims,
    explain_refused_group,
    explain_refused_workload,
)
from gpuconsole.model.cluster import Pod, PodPhase
from gpuconsole.model.job import Job
from gpuconsole.model.pod_template import PodSet
from gpuconsole.model.queues import ClusterQueue
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue import conditions
from gpuconsole.scheduling.kueue.workload_controller import PODS_READY

__all__ = [
    "EngineVerdict",
    "PendingExplanation",
    "Undivided",
    "explain",
    "explain_admitted",
    "undivided",
    "workload_of",
]


class Undivided(Struct, frozen=True):
    """A pod count that is not a multiple of the topology slice size, so that some pods are never placed."""

    count: int
    size: int

    @property
    def left_over(self) -> int:
        """Number of pods that get no topology domain."""
        return self.count % self.size

    @property
    def helps(self) -> str:
        """Return the remedy as text: to run one of the nearest pod counts that the slice size divides."""
        whole = self.count - self.left_over
        return f"run {' or '.join(str(count) for count in (whole, whole + self.size) if count)} pods"


def undivided(pod_set: PodSet, count: int) -> Undivided | None:
    """The mismatch between pod count and slice size; None if there is none, or no slices are requested."""
    size = pod_set.topology.slice_size if pod_set.topology is not None else None
    return Undivided(count, size) if size and count % size else None


_JUDGED = (
    *(
        PendingReason.EXCEEDS_MAX,
        PendingReason.QUOTA,
        PendingReason.FLAVOR_MISMATCH,
        PendingReason.TOPOLOGY,
        PendingReason.NAMESPACE,
    ),
    *(PendingReason.WAITING_FOR_VICTIMS, PendingReason.CONTENTION),
)
"""Reasons that only an admission attempt shows."""
_UNEXPLAINED = (PendingReason.QUEUED, PendingReason.INADMISSIBLE)
"""Kueue's message gives no reason."""


class EngineVerdict(Struct, frozen=True):
    """Decision of the admission engine about a workload on the current cluster: a code, and Kueue's message for it."""

    code: PendingReason
    text: str = ""


Attempt = Callable[[str], EngineVerdict | None]
"""Admission attempt for the workload of a key; returns None if it is in no active queue."""


def explain(snapshot: Snapshot, key: str, attempt: Attempt | None = None) -> PendingExplanation:
    """Explain a workload (`ns/name`), a job (`Kind/ns/name`) or a pod (`ns/name`).

    The current state of the objects takes precedence over older messages of a scheduler: a queue that was stopped since
    takes precedence over a message about quota. An `attempt` replaces Kueue's message; it is made only for a pending
    workload in an active queue, if all objects that its result depends on are visible. An unknown key gives code
    `other`.
    """
    workload = workload_of(snapshot, key)
    if workload is not None:
        return _explain_workload(snapshot, workload, attempt)
    pods = [pod for pod in snapshot.pods.all() if key in (pod.job, pod.key)]
    job = snapshot.jobs.get(key)
    refused = explain_refused(snapshot, key, job, pods) if job is not None else None
    refused = refused or explain_refused_claims(snapshot, key, pods)
    if refused is None and job is not None:
        refused = explain_refused_group(snapshot, job) or explain_refused_workload(snapshot, job)
    if refused is not None:
        return refused
    if pods:
        found = explain_pods(snapshot, key, pods) or explain_failing(key, pods)
        return found or not_waiting(key, "Running: all pods are scheduled.")
    if job is not None:
        return _unqueued(snapshot, job) or explain_podless(snapshot, job)
    return PendingExplanation(
        subject=key, code=PendingReason.OTHER, headline=f"{key} not found: it may have been deleted."
    )


def _unqueued(snapshot: Snapshot, job: Job) -> PendingExplanation | None:
    """Return code `unseen` for a queued job whose Workload is not visible."""
    lacking = snapshot.seen.missing_reasons(Workload, within=job.namespace)
    if job.ended or not job.queue or not lacking:
        return None
    return PendingExplanation(
        subject=job.key, code=PendingReason.UNSEEN, headline=f"Pending; the reason is {not_known(lacking)}."
    )


def workload_of(snapshot: Snapshot, key: str) -> Workload | None:
    """Return the Workload of this key, or that of the job of this key."""
    workload = snapshot.workloads.get(key)
    if workload is None and key in snapshot.jobs:
        return next((w for w in snapshot.workloads.all() if w.owner == key), None)
    return workload


def _explain_workload(snapshot: Snapshot, workload: Workload, attempt: Attempt | None) -> PendingExplanation:
    if workload.finished:
        return _explain_finished(workload)
    if workload.reserved:
        return _explain_reserved(snapshot, workload)
    return _explain_waiting(snapshot, workload, attempt)


def _explain_finished(workload: Workload) -> PendingExplanation:
    said = workload.condition("Finished")
    return PendingExplanation(
        subject=workload.key,
        code=PendingReason.NOT_WAITING,
        headline="Finished.",
        text=said.message if said is not None else "",
        source=KUEUE if said is not None and said.message else "",
        since=said.since if said is not None else None,
    )


def _explain_reserved(snapshot: Snapshot, workload: Workload) -> PendingExplanation:
    queue = workload.cluster_queue
    evicted = workload.condition("Evicted")
    if evicted is not None and evicted.status:
        headline = "Evicted; its quota is released when its pods terminate."
        return PendingExplanation(
            subject=workload.key,
            code=PendingReason.NOT_WAITING,
            headline=headline,
            text=evicted.message,
            source=KUEUE,
            queue=queue,
            since=evicted.since,
        )
    if not workload.admitted:
        open_checks = [check for check in workload.checks if check.state != "Ready"]
        why = conditions.unadmitted_reason(workload)
        late = why is not None and why.reason == conditions.TOPOLOGY_PENDING
        checks = ", ".join(check.name for check in open_checks) or "its admission checks"
        names = "its topology assignment" if late else checks
        return PendingExplanation(
            subject=workload.key,
            code=PendingReason.CHECKS,
            headline=f"Quota reserved in {queue}; waiting for {names}.",
            text="; ".join(check.message for check in open_checks if check.message),
            source=KUEUE,
            queue=queue,
            lines=tuple(f"{check.name}: {check.state}" for check in workload.checks),
        )
    return explain_admitted(snapshot, workload)


def explain_admitted(snapshot: Snapshot, workload: Workload) -> PendingExplanation:
    """Explain why not all pods of an admitted workload run; if all do, say so."""
    queue = workload.cluster_queue
    pods = list(pods_by_node(snapshot).of(workload.key).values())
    runs = pods_run(snapshot, workload)
    refused = None if runs or workload.cluster else _refused(snapshot, workload)
    refused = refused or explain_refused_claims(snapshot, workload.key, pods, queue)
    if refused is not None:
        return refused
    found = explain_pods(snapshot, workload.key, pods, queue) or explain_failing(workload.key, pods, queue)
    if found is not None and found.code is PendingReason.GATED:
        return _part_placed(workload, found) or found
    if found is not None:
        return found
    where = f" in cluster {workload.cluster}" if workload.cluster else ""
    if runs or (runs is None and workload.is_true(PODS_READY)):
        unseen = snapshot.seen.missing_reasons(Pod, within=workload.namespace) if not (pods or where) else ()
        by = f" (by condition PodsReady; its pods are {not_known(unseen)})" if unseen else ""
        return not_waiting(workload.key, f"Running{where}, admitted by {queue}{by}.")
    code, why = _not_running(snapshot, workload, pods)
    admitted = workload.condition("Admitted")
    return PendingExplanation(
        subject=workload.key,
        code=code,
        headline=f"Admitted by {queue}{where}{why}",
        queue=queue,
        since=admitted.since if admitted is not None and code is not PendingReason.NOT_WAITING else None,
    )


def _refused(snapshot: Snapshot, workload: Workload) -> PendingExplanation | None:
    """Explain that a ResourceQuota refuses a workload's pods; pods that have ended are not missing."""
    if not any(quota.namespace == workload.namespace for quota in snapshot.resource_quotas.all()):
        return None
    pods = [pod for pod in snapshot.pods.all() if pod.workload == workload.key]
    return explain_refused(snapshot, workload.key, workload, pods, workload.cluster_queue)


def _not_running(snapshot: Snapshot, workload: Workload, pods: Sequence[Pod]) -> tuple[PendingReason, str]:
    """Return why a workload whose visible pods are all scheduled is not running: a code and the end of a sentence."""
    count = pods_of_gang(workload)
    late = sum(pod.phase is not PodPhase.RUNNING and not pod.deleted for pod in pods)
    if late:
        return PendingReason.STARTING, f"; {late} of {max(count, len(pods))} pods are starting."
    unseen = snapshot.seen.missing_reasons(Pod, within=workload.namespace)
    if unseen and not workload.cluster:
        return PendingReason.NOT_WAITING, f"; the state of its pods is {not_known(unseen)}."
    if workload.cluster:
        return PendingReason.NOT_WAITING, "; the state of its pods there is unknown."
    there = pods_by_node(snapshot).succeeded.get(workload.key, 0) + sum(not pod.deleted for pod in pods)
    if not there and workload.owner and workload.owner not in snapshot.jobs:
        return PendingReason.NOT_WAITING, "; the state of its pods is unknown: none is known to belong to it."
    return PendingReason.NO_PODS, f"; {there} of its {count} pods exist." if there else "; it has no pods."


def _part_placed(workload: Workload, gated: PendingExplanation) -> PendingExplanation | None:
    """Explain that Kueue's topology assignment covers only some pods, so that the others stay gated (kueue#15277)."""
    parts = {part.name: part for part in workload.pod_sets}
    for assignment in workload.admission.pod_sets if workload.admission is not None else ():
        placed = sum(domain.count for domain in assignment.topology)
        if not assignment.topology or placed >= assignment.count:
            continue
        part, count = parts.get(assignment.name), assignment.count
        odd = undivided(part, count) if part is not None else None
        why = f": {count} is not a multiple of its slice size {odd.size}" if odd is not None else ""
        assigned = f"Kueue assigned topology domains to {placed} of {count} pods of {assignment.name}{why}"
        return replace(
            gated,
            code=PendingReason.TOPOLOGY,
            headline=f"{assigned}. The others stay gated.",
            lines=(f"{odd.helps}, each of which is assigned a topology domain",) if odd is not None else (),
            remedies=(Remedy(True, odd.helps),) if odd is not None else (),
        )
    return None


def _explain_waiting(snapshot: Snapshot, workload: Workload, attempt: Attempt | None) -> PendingExplanation:
    local_queue = snapshot.local_queues.get(workload.local_queue)
    queue = snapshot.cluster_queues.get(local_queue.cluster_queue) if local_queue is not None else None
    refused = workload.condition("QuotaReserved")
    text = refused.message if refused is not None and not refused.status else ""
    lacking = missing_for_admission(snapshot)
    obstacle = admission_obstacle(snapshot, workload)
    verdict = attempt(workload.key) if attempt is not None and obstacle is None and not lacking else None
    judged = verdict.text if verdict is not None else text
    reasons = read_kueue(judged) if judged else ()
    code = verdict.code if verdict is not None else _code(workload, reasons, queue)
    if obstacle is not None:
        code = obstacle.code
    elif lacking and code in _UNEXPLAINED:
        code = PendingReason.UNSEEN
    # Usage is too low if workloads that hold quota are not visible.
    compared = queue if not lacking else None
    gaps = (
        shortages(snapshot, workload, compared, reasons) if compared is not None and code is PendingReason.QUOTA else ()
    )
    if obstacle is not None:
        advice = obstacle.advice
    elif code is PendingReason.UNSEEN:
        advice = Advice(f"Pending; the reason is {not_known(lacking)}.")
    else:
        advice = advise(snapshot, workload, queue, code, reasons, gaps)
    base = PendingExplanation(
        subject=workload.key,
        code=code,
        headline=advice.headline,
        text=text,
        source=KUEUE if text else "",
        queue=local_queue.cluster_queue if local_queue is not None else "",
        since=refused.since if refused is not None and text else workload.created,
        position=position(snapshot, workload.key),
        inadmissible=workload.inadmissible,
        lines=(*((_kueues_word(lacking),) if lacking and code in _JUDGED else ()), *advice.lines),
        remedies=advice.remedies,
    )
    return _with_holders(snapshot, workload, compared, base, gaps)


def _with_holders(
    snapshot: Snapshot,
    workload: Workload,
    queue: ClusterQueue | None,
    base: PendingExplanation,
    gaps: Sequence[QuotaBreakdown],
) -> PendingExplanation:
    if queue is None or not gaps:
        return base
    held_by = holders(snapshot, queue.name, [(gap.flavor, gap.resource) for gap in gaps])
    first = [w for w in held_by if w.admission is not None and _holds(w, gaps[0])]
    return replace(
        base,
        holders=tuple(describe_holder(snapshot, holder) for holder in held_by[:MOST_HOLDERS]),
        remedies=(*remedies(snapshot, workload, queue, gaps[0], first), *base.remedies),
    )


def _holds(workload: Workload, gap: QuotaBreakdown) -> bool:
    return any(pair == (gap.flavor, gap.resource) for pair, _ in held(workload))


def _kueues_word(lacking: Sequence[str]) -> str:
    return f"Reason from Kueue's message, not verified ({'; '.join(lacking)})."


def _code(workload: Workload, reasons: Sequence[ParsedReason], queue: ClusterQueue | None) -> PendingReason:
    groups = flavor_groups(queue)
    return dominant(reasons, groups) if reasons else pending_code(workload, groups)
