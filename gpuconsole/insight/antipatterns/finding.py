"""All anti-patterns of a cluster, the dearest first."""

from collections.abc import Sequence

from gpuconsole.insight.antipatterns import crowd, usage, written
from gpuconsole.insight.antipatterns.pattern import Code, Pattern
from gpuconsole.insight.linting import Engines
from gpuconsole.insight.linting.facts import OPEN, placed_by
from gpuconsole.model.events import Happened
from gpuconsole.model.prices import Prices
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.sim.policy import SimPolicy

_RANK = {code: rank for rank, code in enumerate(Code)}


def antipatterns(
    snapshot: Snapshot, prices: Prices, history: Sequence[Happened] = (), engines: Engines = OPEN
) -> tuple[Pattern, ...]:
    """All that is found, the dearest first; what costs nothing by kind. `history` has the oldest line first."""
    found = [
        *crowd.find(snapshot, prices, history),
        *usage.find(snapshot, prices),
        *written.find(snapshot, engines, prices),
    ]
    return tuple(sorted(found, key=lambda one: (-one.cost_per_day, _RANK[one.code], one.subject, one.text)))


def engines_of(policy: SimPolicy) -> Engines:
    """Who decides, as far as the manifests' meaning depends on it."""
    placement = placed_by(policy.placement)
    return Engines(
        # A cluster in which kube-scheduler is assumed may have other schedulers beside it.
        placement="" if placement == "kube-scheduler" else placement,
        kueue=policy.kueue,
        unqueued=policy.kueue is None,
        capacity=policy.capacity,
    )
