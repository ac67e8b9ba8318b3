"""MultiKueue (KEP 693): a manager reserves quota, and worker clusters compete to run the workload.

Reconciles a workload of the manager with its copies on worker clusters, one step at a time.

Kueue 0.19 pkg/controller/admissionchecks/multikueue/workload.go, reconcileGroup: the first cluster that admits its copy
runs it; the copy's Finished condition becomes the workload's.

Dispatchers choose the worker clusters that get a copy, and when (pkg/controller/workloaddispatcher): `nominate_all`
nominates every cluster of the MultiKueueConfig at once, `nominate_incrementally` a few more in each round.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.model.clock import MINUTE, Span, Time
from gpuconsole.model.workloads import CheckState, Condition, Workload

ROUND_DURATION: Span = 5 * MINUTE
"""Duration of a round; the next one may start when more than this has passed."""


class ClusterNomination(Struct, frozen=True, kw_only=True):
    """The clusters nominated for a workload."""

    clusters: tuple[str, ...]
    started: Time | None = None
    """Start of the current round; None if there is none."""
    next_round: Time | None = None
    """Time of the next round; None if no cluster is left to nominate."""
    exhausted: bool = False
    """True if a new round was due, and no cluster was left to nominate."""


def skips_nomination(workload: Workload, check: CheckState | None, *, elastic: bool = False) -> bool:
    """True if no cluster may be nominated: the check is missing or not Pending, or a cluster has the workload already.

    An elastic workload that has a cluster may still be nominated (Kueue 0.19 workload.ShouldSkipClusterNomination).
    """
    if check is None or check.state != "Pending":
        return True
    return bool(workload.cluster) and not elastic


def nominate_all(remotes: Sequence[str]) -> ClusterNomination:
    """Nominate all clusters."""
    return ClusterNomination(clusters=tuple(remotes))


def nominate_incrementally(
    nominated: Sequence[str],
    remotes: Sequence[str],
    *,
    started: Time | None,
    now: Time,
    step_size: int,
    config_order: bool = True,
) -> ClusterNomination:
    """Nominate `step_size` more clusters if the current round is over or there is none; nominated clusters stay.

    `config_order` takes them as `remotes`, the MultiKueueConfig, lists them (gate
    MultiKueueIncrementalDispatcherRespectConfigOrder), else by name.
    """
    if started is not None and now - started <= ROUND_DURATION:
        return ClusterNomination(clusters=tuple(nominated), started=started, next_round=started + ROUND_DURATION + 1)
    left = [cluster for cluster in remotes if cluster not in nominated]
    if not left:
        return ClusterNomination(clusters=tuple(nominated), started=started, exhausted=True)
    chosen = (left if config_order else sorted(left))[:step_size]
    return ClusterNomination(
        clusters=(*nominated, *chosen), started=now, next_round=now + ROUND_DURATION + 1 if left[step_size:] else None
    )


CONTROLLER = "kueue.x-k8s.io/multikueue"
EVICTED_ON_MANAGER = "EvictedOnManagerCluster"
_OUT_OF_SYNC = "OutOfSync"


class MultiKueueGroup(Struct, frozen=True, kw_only=True):
    """The workload, the state of its MultiKueue check, and its copies."""

    local: Workload
    check: CheckState
    copies: Mapping[str, Workload | None]
    """Reachable cluster → its copy; None if it has none."""
    unreachable: Mapping[str, Time] = {}
    """Unreachable cluster → time since when."""


class MultiKueueActions(Struct, frozen=True, kw_only=True):
    """The actions that one step requires."""

    check: CheckState | None = None
    cluster: str = ""
    """The cluster that admitted the workload; empty if none did in this step."""
    finish: tuple[str, str] | None = None
    """Reason and message of the Finished condition to set."""
    delete_copies: tuple[str, ...] = ()
    """Clusters whose copies are to be deleted."""
    deactivate: tuple[str, str] | None = None
    """(cluster, message): the copy to deactivate, and why."""
    nominate: bool = False
    """True if clusters are to be nominated."""
    reconcile_at: Time | None = None
    """When to reconcile again even if nothing changes; None if not needed."""


def next_actions(group: MultiKueueGroup, now: Time, worker_lost_timeout: Span) -> MultiKueueActions:
    """Return the manager's next actions; `worker_lost_timeout`: how long the admitting cluster may be unreachable."""
    local, check = group.local, group.check
    present = tuple(cluster for cluster, copy in group.copies.items() if copy is not None)
    if local.finished or not local.reserved:
        return MultiKueueActions(delete_copies=present)
    cluster, finished = _first(group, "Finished")
    if finished is not None:
        return _finished(check, cluster, finished)
    cluster, evicted = _first(group, "Evicted")
    if evicted is not None and local.is_true("Evicted"):
        return MultiKueueActions()
    if evicted is not None and check.state == "Ready":
        why = f'Workload evicted on worker cluster: "{local.cluster}", resetting for re-admission. Previously: "Ready"'
        return MultiKueueActions(check=replace(check, state="Retry", message=why))
    cluster, admitted = _first(group, "Admitted")
    if admitted is not None:
        return _admitted(group, cluster, tuple(name for name in present if name != cluster))
    if check.state == "Ready":
        return _cluster_lost(group, now, worker_lost_timeout)
    others_ready = all(other.state == "Ready" for other in local.checks if other.name != check.name)
    return MultiKueueActions(nominate=others_ready and not skips_nomination(local, check))


def _first(group: MultiKueueGroup, condition: str) -> tuple[str, Condition | None]:
    """Return the cluster whose copy has had a condition for the longest time, and the condition.

    The cluster that runs the workload comes first: a copy on a cluster that was lost and is back does not count.
    """
    found = [
        (cluster != group.local.cluster, known.since, cluster, known)
        for cluster, copy in group.copies.items()
        if copy is not None and (known := copy.condition(condition)) is not None and known.status
    ]
    _, _, cluster, known = min(found, key=lambda entry: entry[:3], default=(False, 0, "", None))
    return cluster, known


def _finished(check: CheckState, cluster: str, finished: Condition) -> MultiKueueActions:
    if finished.reason != _OUT_OF_SYNC:
        return MultiKueueActions(finish=(finished.reason, finished.message))
    if check.state != "Ready":
        return MultiKueueActions()
    why = f'Remote workload on worker cluster "{cluster}" is out of sync with its user job, resetting for re-dispatch'
    return MultiKueueActions(check=_check_reset(check, why))


def _admitted(group: MultiKueueGroup, cluster: str, others: tuple[str, ...]) -> MultiKueueActions:
    """Keep the copy on one cluster and remove the others."""
    local, check = group.local, group.check
    evicted = local.condition("Evicted")
    if evicted is not None and evicted.status:
        return MultiKueueActions(delete_copies=others, deactivate=(cluster, f"Evicted on manager: {evicted.message}"))
    if check.state != "Pending":
        return MultiKueueActions(delete_copies=others)
    ready = replace(check, state="Ready", message=f'The workload was admitted on "{cluster}"')
    return MultiKueueActions(delete_copies=others, cluster=cluster, check=ready)


def _cluster_lost(group: MultiKueueGroup, now: Time, worker_lost_timeout: Span) -> MultiKueueActions:
    """Wait for the lost cluster of a running copy until its timeout."""
    lost = group.unreachable.get(group.local.cluster)
    if lost is None:
        return MultiKueueActions(check=_check_reset(group.check, "Admitting remote no longer exists"))
    if now < lost + worker_lost_timeout:
        return MultiKueueActions(reconcile_at=lost + worker_lost_timeout)
    return MultiKueueActions(check=_check_reset(group.check, "Admitting remote lost"))


def _check_reset(check: CheckState, why: str) -> CheckState:
    return replace(check, state="Retry", message=f'{why}, Previously: "{check.state}"')
