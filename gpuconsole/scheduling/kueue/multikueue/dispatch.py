"""To which worker clusters a workload is offered, and when (Kueue 0.19 pkg/controller/workloaddispatcher).

All at once is one round with every cluster of the MultiKueueConfig; the incremental dispatcher offers it to a few more
in each round.
"""

from collections.abc import Sequence

from msgspec import Struct

from gpuconsole.model.clock import MINUTE, Span, Time
from gpuconsole.model.workloads import CheckState, Workload

ROUND: Span = 5 * MINUTE
"""A round is over when more than this has passed."""


class Nomination(Struct, frozen=True, kw_only=True):
    """The clusters to which a workload is dispatched from now on."""

    clusters: tuple[str, ...]
    started: Time | None = None
    """When the round that is under way began; None if there is none."""
    again: Time | None = None
    """When the next round is due; None if nothing is left to offer."""
    exhausted: bool = False
    """A new round was due, and no cluster was left to nominate."""


def skips_nomination(workload: Workload, check: CheckState | None, *, elastic: bool = False) -> bool:
    """True if no cluster is to be nominated: no such check, a decided one, or a cluster already has the workload.

    An elastic workload is nominated again when it grows (Kueue 0.19 workload.ShouldSkipClusterNomination).
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
    """Offer a workload to `step` more clusters when a round is over; those nominated before stay.

    `in_order` takes them as the MultiKueueConfig lists them (gate MultiKueueIncrementalDispatcherRespectConfigOrder),
    else by name.
    """
    if started is not None and now - started <= ROUND:
        return Nomination(clusters=tuple(nominated), started=started, again=started + ROUND + 1)
    left = [cluster for cluster in remotes if cluster not in nominated]
    if not left:
        return Nomination(clusters=tuple(nominated), started=started, exhausted=True)
    chosen = (left if in_order else sorted(left))[:step]
    return Nomination(clusters=(*nominated, *chosen), started=now, again=now + ROUND + 1 if left[step:] else None)
