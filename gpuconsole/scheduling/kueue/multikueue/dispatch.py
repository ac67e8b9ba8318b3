"""Dispatchers: choose the worker clusters for a workload, and when (Kueue 0.19 pkg/controller/workloaddispatcher).

AllAtOnce nominates every cluster of the MultiKueueConfig at once; Incremental nominates a few more in each round.
"""

from collections.abc import Sequence

from msgspec import Struct

from gpuconsole.model.clock import MINUTE, Span, Time
from gpuconsole.model.workloads import CheckState, Workload

ROUND: Span = 5 * MINUTE
"""A round is over when more than this has passed."""


class Nomination(Struct, frozen=True, kw_only=True):
    """The clusters nominated for a workload."""

    clusters: tuple[str, ...]
    started: Time | None = None
    """Start of the current round; None if there is none."""
    again: Time | None = None
    """Time of the next round; None if no cluster is left to nominate."""
    exhausted: bool = False
    """A new round was due, and no cluster was left to nominate."""


def skips_nomination(workload: Workload, check: CheckState | None, *, elastic: bool = False) -> bool:
    """True if no cluster may be nominated: the check is missing or not Pending, or a cluster has the workload already.

    An elastic workload that has a cluster may still be nominated (Kueue 0.19 workload.ShouldSkipClusterNomination).
    """
    if check is None or check.state != "Pending":
        return True
    return bool(workload.cluster) and not elastic


def all_at_once(remotes: Sequence[str]) -> Nomination:
    """Nominate all clusters."""
    return Nomination(clusters=tuple(remotes))


def incremental(
    nominated: Sequence[str],
    remotes: Sequence[str],
    *,
    started: Time | None,
    now: Time,
    step: int,
    in_order: bool = True,
) -> Nomination:
    """Nominate `step` more clusters if the current round is over or there is none; nominated clusters stay.

    `in_order` takes them as `remotes`, the MultiKueueConfig, lists them (gate
    MultiKueueIncrementalDispatcherRespectConfigOrder), else by name.
    """
    if started is not None and now - started <= ROUND:
        return Nomination(clusters=tuple(nominated), started=started, again=started + ROUND + 1)
    left = [cluster for cluster in remotes if cluster not in nominated]
    if not left:
        return Nomination(clusters=tuple(nominated), started=started, exhausted=True)
    chosen = (left if in_order else sorted(left))[:step]
    return Nomination(clusters=(*nominated, *chosen), started=now, again=now + ROUND + 1 if left[step:] else None)
