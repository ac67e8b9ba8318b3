"""Monopolies without Kueue: one team (a queue of Volcano or KAI, else a namespace) holds nearly all GPUs."""

from collections.abc import Iterator, Mapping

from msgspec import Struct

from gpuconsole.insight.antipatterns.pattern import DAY_HOURS, AntiPattern, AntiPatternCode
from gpuconsole.insight.cost import unit_hourly
from gpuconsole.insight.data_gaps import PLACES
from gpuconsole.insight.engine_queues import queues
from gpuconsole.insight.engine_shares import ENGINES
from gpuconsole.insight.engine_uses import volcano_uses
from gpuconsole.insight.gpu_allocations import gpu_allocations, queue_of
from gpuconsole.insight.gpumap import GpuState, gpu_rows
from gpuconsole.insight.quota_node import leaves
from gpuconsole.model.device_units import WHOLE_GPU, common
from gpuconsole.model.prices import Prices
from gpuconsole.model.snapshot import Snapshot

MONOPOLY = 0.8
"""Threshold: fraction of the GPUs that one team holds while others are pending."""


class _Team(Struct):
    """Accelerators that a team holds and requests. Filled while they are counted."""

    used: float = 0.0
    unqueued: float = 0.0
    """Part of the held accelerators that belongs to no Kueue Workload."""
    wanted: float = 0.0
    blocked: bool = False
    """It has pending pods that fit on no node."""


def team_monopolies(snapshot: Snapshot, prices: Prices) -> Iterator[AntiPattern]:
    """A team that holds most accelerators, more than its share, while another one is pending below its share.

    A team's share is what its queue deserves; for namespaces, and for queues without such a value, an equal part. Work
    that Kueue admitted is not counted as a monopoly, since quota decides there (see `contention.monopoly`); but it may
    be pending because unqueued work of another namespace holds the nodes.
    """
    if not snapshot.seen.all_of(*PLACES) or not _anybody_waits(snapshot):
        return
    rows = [row for row in gpu_rows(snapshot) if row.ready]
    total = sum(sum(row.units.values()) for row in rows)
    by_queue, teams = _teams(snapshot, max((row.counts[GpuState.IDLE] for row in rows), default=0))
    shares = _shares(snapshot, teams, total) if by_queue else dict.fromkeys(teams, total / max(1, len(teams)))
    unit = common(unit for row in rows for unit in row.units) or WHOLE_GPU
    for name, team in sorted(teams.items()):
        starved = [
            other for other, one in sorted(teams.items()) if other != name and one.blocked and one.used < shares[other]
        ]
        if not total or team.unqueued / total < MONOPOLY or team.used <= shares[name] or not starved:
            continue
        beyond = team.used - shares[name]
        kind = "queue" if by_queue else "namespace"
        verb = "has" if len(starved) == 1 else "have"
        whose = "its share" if len(starved) == 1 else "their shares"
        yield AntiPattern(
            code=AntiPatternCode.MONOPOLY,
            subject=name,
            text=(
                f"{kind} {name} holds {100 * team.used / total:.0f}% of the {total} {unit.noun}s; "
                f"{', '.join(starved)} {verb} pending work below {whose}"
            ),
            evidence={
                "holds": round(team.used, 1),
                "share": round(shares[name], 1),
                "of": total,
                "others wait for": round(sum(teams[other].wanted for other in starved), 1),
            },
            gpus=beyond,
            unit=unit.noun,
            cost_per_day=beyond * unit_hourly(snapshot, unit.noun, prices) * DAY_HOURS,
            fix=_FIXES[kind],
        )


_FIXES = {
    "queue": "limit the queue (Volcano: capability, KAI: limit), or let the others reclaim their deserved share",
    "namespace": "limit the namespace with a ResourceQuota, or use Kueue with quota for each team",
}


def _anybody_waits(snapshot: Snapshot) -> bool:
    pods = any(one.devices for one in gpu_allocations(snapshot).get("", ()))
    return pods or any(group.phase in ("", "Pending") for group in snapshot.pod_groups.all())


def _teams(snapshot: Snapshot, most_idle: int) -> tuple[bool, Mapping[str, _Team]]:
    """Sum accelerators by team: by queue if there are several queues, else by namespace. The first value is True if by
    queue.

    A pod that would fit into the idle GPUs of one node (`most_idle`) is pending for another reason.
    """
    work = [(node, one) for node, held in gpu_allocations(snapshot).items() for one in held if one.devices]
    held_back = {name: n for name, use in volcano_uses(snapshot).items() if (n := sum(use.held_back.values()))}
    names = {queue_of(snapshot, one) for _, one in work if not one.workload} | held_back.keys()
    by_queue = len(names - {""}) > 1
    teams: dict[str, _Team] = {}
    for node, one in work:
        if by_queue and one.workload:
            continue
        team = teams.setdefault(queue_of(snapshot, one) if by_queue else one.namespace, _Team())
        if node:
            team.used += one.gpus or one.devices
            team.unqueued += 0 if one.workload else one.gpus or one.devices
        else:
            team.wanted += one.devices
            team.blocked |= one.devices > most_idle
    for name, amount in held_back.items() if by_queue else ():
        team = teams.setdefault(name, _Team())
        team.wanted += amount
        team.blocked |= amount > most_idle
    return by_queue, teams


def _shares(snapshot: Snapshot, teams: Mapping[str, _Team], total: int) -> dict[str, float]:
    """The deserved share of each queue; an equal part if none is set, or if together they exceed the cluster."""
    deserved = {
        leaf.name: float(leaf.gpus.nominal)
        for root in queues(snapshot)
        if root.kind in ENGINES
        for leaf in leaves(root)
        if leaf.name in teams
    }
    equal = total / len(teams)
    if not 0 < sum(deserved.values()) <= total:
        return dict.fromkeys(teams, equal)
    return {name: deserved.get(name, 0.0) for name in teams}
