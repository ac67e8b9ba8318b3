"""A forecast: what Kueue's next cycles would do to everything that waits, by our own engine on a Snapshot.

It is the simulator's engine, and nothing is written: the Snapshot goes on in a simulation for one moment, without time.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.model.clock import Time
from gpuconsole.model.events import Happened, What
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.workloads import Admission, Workload
from gpuconsole.sim.engine import Simulation
from gpuconsole.sim.policy import SimPolicy

NO_KUEUE = "There is no Kueue, so nothing waits for it"


class Fate(StrEnum):
    """What the next cycles do to a workload."""

    ADMITTED = "admitted"
    """Quota is reserved for it."""
    AFTER_VICTIMS = "after-victims"
    """It waits until those are gone that make room for it."""
    WAITS = "waits"
    PREEMPTED = "preempted"
    """It runs, and has to make room."""


class Prospect(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is foreseen for one workload."""

    workload: str
    queue: str = ""
    """ClusterQueue."""
    gpus: int = 0
    priority: int = 0
    created: Time = 0
    fate: Fate
    cycle: int = 0
    """The how many-th cycle from now admits it; 0 where none does."""
    flavors: tuple[str, ...] = ()
    given: tuple[str, ...] = ()
    """What each pod set is given, as `assigned` writes it."""
    victims: tuple[str, ...] = ()
    """Who makes room for it."""
    by: str = ""
    """Whom it makes room for."""
    rule: str = ""
    """Why it is a victim: the reason of Kueue's Preempted condition."""
    reason: str = ""
    message: str = ""
    """Why it waits: reason and text as Kueue would write them."""


class Forecast(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is foreseen at one moment. It holds as long as nothing else changes."""

    time: Time = 0
    prospects: Mapping[str, Prospect] = {}
    """By workload: all that wait, and those that have to make room for them."""
    assumed: tuple[str, ...] = ()
    """What had to be assumed, in sentences."""

    def of(self, workload: str) -> Prospect | None:
        return self.prospects.get(workload)

    @property
    def expected(self) -> dict[str, Prospect]:
        """Those that Kueue is to do something for as soon as it comes to them."""
        return {key: one for key, one in self.prospects.items() if one.fate in (Fate.ADMITTED, Fate.AFTER_VICTIMS)}

    def in_order(self) -> list[Prospect]:
        """First what happens, cycle by cycle, then who waits; each by priority and age."""
        order = list(Fate)
        return sorted(
            self.prospects.values(),
            key=lambda one: (order.index(one.fate), one.cycle, -one.priority, one.created, one.workload),
        )


def forecast(snapshot: Snapshot, policy: SimPolicy, *, assumed: Iterable[str] = (), seed: int = 0) -> Forecast:
    """Let the engine decide on a Snapshot until another cycle would decide nothing else, without letting time pass.

    Chance plays no part in admission; `seed` is only what a simulation begins with.
    """
    if policy.kueue is None:
        return Forecast(time=snapshot.time, assumed=(*assumed, NO_KUEUE))
    simulation = Simulation.from_snapshot(snapshot, policy=replace(policy, arrivals=()), seed=seed)
    lines = [event for event in simulation.drain() if isinstance(event, Happened) and event.what is What.PREEMPTED]
    after = simulation.snapshot()
    victims: dict[str, list[str]] = {}
    for line in lines:
        victims.setdefault(line.by, []).append(line.workload)
    prospects = {line.workload: _victim(snapshot, line) for line in lines}
    for workload in snapshot.workloads.all():
        later = after.workloads.get(workload.key)
        if later is not None and _waits(workload):
            prospects[workload.key] = _prospect(snapshot, later, tuple(victims.get(workload.key, ())))
    return Forecast(time=snapshot.time, prospects=prospects, assumed=tuple(assumed))


def assigned(admission: Admission) -> tuple[str, ...]:
    """What an admission gives to each pod set, in words that compare: `main×2 nvidia.com/gpu=h100`."""
    return tuple(
        f"{part.name}×{part.count} {','.join(f'{name}={flavor}' for name, flavor in sorted(part.flavors.items()))}"
        for part in sorted(admission.pod_sets, key=lambda part: part.name)
    )


def in_words(prospect: Prospect) -> str:
    """What is foreseen, in a line."""
    match prospect.fate:
        case Fate.ADMITTED:
            on = f" on {', '.join(prospect.flavors)}" if prospect.flavors else ""
            made_room = f", after {_names(prospect.victims)}" if prospect.victims else ""
            return f"admitted in cycle {prospect.cycle}{on}{made_room}"
        case Fate.AFTER_VICTIMS:
            return f"waits for {_names(prospect.victims)} to make room"
        case Fate.PREEMPTED:
            return f"preempted by {prospect.by} ({prospect.rule})"
        case Fate.WAITS:
            return f"waits: {prospect.message}" if prospect.message else "waits"


def _names(workloads: Sequence[str]) -> str:
    return ", ".join(workloads[:3]) + (f" and {len(workloads) - 3} more" if len(workloads) > 3 else "")


def _waits(workload: Workload) -> bool:
    return workload.active and not workload.reserved and not workload.finished


def _victim(snapshot: Snapshot, line: Happened) -> Prospect:
    known = snapshot.workloads.get(line.workload)
    return Prospect(
        workload=line.workload,
        queue=line.queue,
        gpus=line.gpus,
        priority=line.priority,
        created=known.created if known is not None else 0,
        fate=Fate.PREEMPTED,
        by=line.by,
        rule=line.reason,
    )


def _prospect(before: Snapshot, later: Workload, victims: tuple[str, ...]) -> Prospect:
    door = before.local_queues.get(later.local_queue)
    reserved, admission = later.condition("QuotaReserved"), later.admission
    common = {
        "workload": later.key,
        "queue": door.cluster_queue if door is not None else "",
        "gpus": later.gpus,
        "priority": later.priority,
        "created": later.created,
        "victims": victims,
    }
    if later.reserved and reserved is not None and admission is not None:
        flavors = (flavor for part in admission.pod_sets for flavor in part.flavors.values())
        return Prospect(
            **common,  # type: ignore[arg-type]
            fate=Fate.ADMITTED,
            # The engine's cycles of one moment are a microsecond apart.
            cycle=reserved.since - before.time + 1,
            flavors=tuple(dict.fromkeys(flavors)),
            given=assigned(admission),
        )
    return Prospect(
        **common,  # type: ignore[arg-type]
        fate=Fate.AFTER_VICTIMS if victims else Fate.WAITS,
        reason=reserved.reason if reserved is not None else "",
        message=reserved.message if reserved is not None else "",
    )
