"""What GPUs measure, joined to who has them: use by workload, and the rules that find waste and failing hardware.

Thresholds are ours; the meaning of XID codes is NVIDIA's. What is stale counts in no rule, and what is missing is never
taken for 0.
"""

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from statistics import fmean

from msgspec import Struct

from gpuconsole.insight.gpumap import gpu_map
from gpuconsole.insight.once import once
from gpuconsole.model.clock import MINUTE, Span, Time, format_span
from gpuconsole.model.cluster import Pod
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.telemetry import Device, Measure, NodeTelemetry

IDLE: Span = 30 * MINUTE
HOT = 87.0
"""°C at which data-centre GPUs begin to slow down."""
HOARD_MEMORY = 0.8
HOARD_ACTIVE = 0.05
BUSY = 90.0
EMPTY_SM = 0.3
FATAL = {
    48: "an error of two bits in its memory",
    74: "an NVLink error",
    79: "it fell off the bus",
    95: "an uncontained memory error",
    119: "its firmware does not answer",
    120: "its firmware failed",
}
"""XID codes after which a GPU should get no more work."""
USERS = {13: "a fault of the program", 31: "a fault of the program", 43: "the program was stopped", 45: "stopped"}
"""Codes that tell of the program and not of the GPU."""
OTHERS = {
    63: "a row of memory was replaced",
    64: "a row of memory could not be replaced",
    92: "many errors of one bit",
    94: "a contained memory error",
}
_SLOWDOWN = 0x8 | 0x20 | 0x40 | 0x80
"""Of the reasons for lower clocks: slow-down by hardware, by temperature (software, hardware), power brake."""


class Rule(StrEnum):
    """What measurements tell that somebody should know, the most pressing first."""

    FAULTY = "faulty"
    HOT = "hot"
    IDLE = "idle"
    """Given to a pod that has done nothing for half an hour."""
    HOARDING = "hoarding"
    """Its memory is full, and nothing computes."""
    EMPTY = "empty"
    """Always busy by its own word, with most of its multiprocessors without work."""


class Gpu(Struct, frozen=True, kw_only=True):
    """One GPU or MIG instance at one moment, with its owner."""

    node: str
    device: Device
    telemetry: NodeTelemetry
    position: int
    pod: str = ""
    workload: str = ""
    queue: str = ""
    since: Time = 0
    """When its pod started."""

    def value(self, measure: Measure) -> float | None:
        return self.telemetry.value(self.position, measure)

    @property
    def name(self) -> str:
        """`node GPU 3`, with the profile of an instance."""
        part = f" {self.device.profile or 'MIG'} ({self.device.instance})" if self.device.instance >= 0 else ""
        return f"{self.node} GPU {self.device.gpu}{part}"

    @property
    def busy(self) -> float | None:
        """Percent of the time at work, by whichever measure there is."""
        said = self.value(Measure.UTILISATION)
        active = self.value(Measure.ACTIVE)
        return said if said is not None else None if active is None else 100 * active


class Use(Struct, frozen=True, kw_only=True):
    """How a workload uses its GPUs: means over those that are measured."""

    gpus: int
    """GPUs and MIG instances that are its own by what is known."""
    measured: int
    """Those of them of which something is known that is not stale."""
    sm: float | None = None
    """Percent of the multiprocessors that had work."""
    busy: float | None = None
    """Percent of the time at work."""
    memory: float | None = None
    """MiB used, all together."""
    power: float | None = None
    """W, all together."""
    hottest: float | None = None
    """°C."""


class Alarm(Struct, frozen=True, kw_only=True):
    """What a rule found; `text` is a sentence that names the GPU or the workload."""

    rule: Rule
    text: str
    node: str
    workload: str = ""
    gpus: int = 1
    since: Time | None = None


class Coverage(Struct, frozen=True, kw_only=True):
    """How much of a cluster is measured."""

    nodes: int
    """Nodes with GPUs."""
    measured: int
    stale: int
    source: str
    newest: Time

    @property
    def partial(self) -> bool:
        return self.measured - self.stale < self.nodes


@once("telemetry", "pods", "workloads", "nodes")
def gpus(snapshot: Snapshot) -> tuple[Gpu, ...]:
    """Every device that is measured, with its owner: the pod that the source names, else who owns that index."""
    return tuple(gpu for telemetry in snapshot.telemetry.all() for gpu in _of_node(snapshot, telemetry))


def on_node(snapshot: Snapshot, node: str) -> tuple[Gpu, ...]:
    """The measured devices of one node."""
    telemetry = snapshot.telemetry.get(node)
    return tuple(_of_node(snapshot, telemetry)) if telemetry is not None else ()


def _of_node(snapshot: Snapshot, telemetry: NodeTelemetry) -> Iterator[Gpu]:
    row = gpu_map(snapshot).by_node.get(telemetry.name)
    owners = {cell.index: cell.pod for cell in row.cells if cell.pod and not cell.assumed} if row is not None else {}
    for position, device in enumerate(telemetry.devices):
        key = device.pod or (owners.get(device.gpu, "") if device.instance < 0 else "")
        pod: Pod | None = snapshot.pods.get(key) if key else None
        workload = snapshot.workloads.get(pod.workload) if pod is not None else None
        yield Gpu(
            node=telemetry.name,
            device=device,
            telemetry=telemetry,
            position=position,
            pod=key,
            workload=(pod.workload or pod.job) if pod is not None else "",
            queue=workload.cluster_queue if workload is not None else "",
            since=(pod.started or pod.bound) if pod is not None else 0,
        )


def uses(snapshot: Snapshot) -> Mapping[str, Use]:
    """Use by workload (`ns/name`, or the job's key where no Workload stands for it)."""
    by_owner: dict[str, list[Gpu]] = {}
    for gpu in gpus(snapshot):
        if gpu.workload:
            by_owner.setdefault(gpu.workload, []).append(gpu)
    return {owner: _use(owned, snapshot.time) for owner, owned in by_owner.items()}


def _use(owned: Sequence[Gpu], now: Time) -> Use:
    fresh = [gpu for gpu in owned if not gpu.telemetry.stale(now)]

    def known(measure: Measure) -> list[float]:
        return [value for gpu in fresh if (value := gpu.value(measure)) is not None]

    sm, memory, power, heat = map(known, (Measure.SM, Measure.MEMORY_USED, Measure.POWER, Measure.TEMPERATURE))
    busy = [value for gpu in fresh if (value := gpu.busy) is not None]
    return Use(
        gpus=len(owned),
        measured=sum(1 for gpu in fresh if gpu.busy is not None or gpu.value(Measure.SM) is not None),
        sm=100 * fmean(sm) if sm else None,
        busy=fmean(busy) if busy else None,
        memory=sum(memory) if memory else None,
        power=sum(power) if power else None,
        hottest=max(heat, default=None),
    )


def coverage(snapshot: Snapshot) -> Coverage | None:
    """How much is measured, how old it is and who says so; None where nothing ever was."""
    told = list(snapshot.telemetry.all())
    if not told:
        return None
    newest = max(told, key=lambda one: one.time)
    with_gpus = [row.node for row in gpu_map(snapshot).rows if row.gpus or row.mig]
    here = [one for name in with_gpus if (one := snapshot.telemetry.get(name)) is not None]
    return Coverage(
        nodes=len(with_gpus),
        measured=len(here),
        stale=sum(one.stale(snapshot.time) for one in here),
        source=newest.source,
        newest=newest.time,
    )


def alarms(snapshot: Snapshot) -> tuple[Alarm, ...]:
    """All that the rules find, the most pressing first; what is stale tells nothing."""
    now = snapshot.time
    fresh = [gpu for gpu in gpus(snapshot) if not gpu.telemetry.stale(now)]
    found = [*_faulty(fresh), *_hot(fresh), *_idle(fresh, now), *_wasted(fresh)]
    rank = {rule: place for place, rule in enumerate(Rule)}
    return tuple(sorted(found, key=lambda one: (rank[one.rule], -one.gpus, one.node, one.text)))


def _faulty(all_gpus: Sequence[Gpu]) -> Iterator[Alarm]:
    for gpu in all_gpus:
        code = int(gpu.value(Measure.XID) or 0)
        if gpu.value(Measure.REMAP_FAILURE):
            text = f"{gpu.name}: a row of its memory could not be replaced: it has to be exchanged"
        elif code in FATAL:
            text = f"{gpu.name}: XID {code}, {FATAL[code]}: cordon {gpu.node}"
        elif code and code not in USERS:
            text = f"{gpu.name}: XID {code}{', ' + OTHERS[code] if code in OTHERS else ''}"
        else:
            continue
        yield Alarm(rule=Rule.FAULTY, text=text, node=gpu.node, workload=gpu.workload)


def _hot(all_gpus: Sequence[Gpu]) -> Iterator[Alarm]:
    for gpu in all_gpus:
        heat, reasons = gpu.value(Measure.TEMPERATURE), int(gpu.value(Measure.THROTTLE) or 0)
        slowed = reasons & _SLOWDOWN
        if slowed or (heat is not None and heat >= HOT):
            degrees = f" at {heat:.0f} °C" if heat is not None else ""
            what = f"is slowed down{degrees}" if slowed else f"is hot:{degrees.removeprefix(' at')}"
            yield Alarm(rule=Rule.HOT, text=f"{gpu.name} {what}", node=gpu.node, workload=gpu.workload)


def _idle(all_gpus: Sequence[Gpu], now: Time) -> Iterator[Alarm]:
    """Pods that have had GPUs for half an hour without using them, one line a workload."""
    by_owner: dict[str, list[tuple[Gpu, Time]]] = {}
    for gpu in all_gpus:
        since = gpu.telemetry.idle_since(gpu.position)
        if gpu.pod and since is not None:
            begun = max(since, gpu.since)
            if now - begun >= IDLE:
                by_owner.setdefault(gpu.workload or gpu.pod, []).append((gpu, begun))
    for owner, owned in by_owner.items():
        first, since = owned[0][0], max(begun for _, begun in owned)
        count = "a GPU" if len(owned) == 1 else f"{len(owned)} GPUs"
        them = "it" if len(owned) == 1 else "them"
        text = f"{owner} has {count} and has not used {them} for {format_span(now - since)}"
        yield Alarm(rule=Rule.IDLE, text=text, node=first.node, workload=first.workload, gpus=len(owned), since=since)


def _wasted(all_gpus: Sequence[Gpu]) -> Iterator[Alarm]:
    """Full memory without work, and work that fills only few multiprocessors; one line a workload."""
    found: dict[tuple[Rule, str], list[Gpu]] = {}
    for gpu in all_gpus:
        rule = _waste(gpu) if gpu.workload else None
        if rule is not None:
            found.setdefault((rule, gpu.workload), []).append(gpu)
    for (rule, owner), owned in found.items():
        count = "1 GPU" if len(owned) == 1 else f"{len(owned)} GPUs"
        why = (
            "fills the memory and computes nothing" if rule is Rule.HOARDING else "keeps busy with few multiprocessors"
        )
        text = f"{owner} {why}: {count}"
        yield Alarm(rule=rule, text=text, node=owned[0].node, workload=owner, gpus=len(owned))


def _waste(gpu: Gpu) -> Rule | None:
    used, free = gpu.value(Measure.MEMORY_USED), gpu.value(Measure.MEMORY_FREE)
    active, sm = gpu.value(Measure.ACTIVE), gpu.value(Measure.SM)
    full = used is not None and free is not None and used > HOARD_MEMORY * (used + free)
    if full and active is not None and active < HOARD_ACTIVE:
        return Rule.HOARDING
    busy = gpu.value(Measure.UTILISATION)
    return Rule.EMPTY if busy is not None and busy > BUSY and sm is not None and sm < EMPTY_SM else None
