"""Costs over time: how many events a second are allocated, and how long a drain takes, with 10,000 pods on nodes."""

import statistics
from collections.abc import Iterable, Iterator
from functools import partial

from msgspec.structs import replace

from gpuconsole.garbage import uncollected
from gpuconsole.insight.cost.allocation import CostAllocator, CostHour
from gpuconsole.insight.cost.report import CostBy, cost_summary
from gpuconsole.model.clock import HOUR, SECOND, Span
from gpuconsole.model.cluster import Node, Pod, PodPhase
from gpuconsole.model.events import Applied, Deleted, Event, HistoryEvent, HistoryEventKind
from gpuconsole.model.pod_template import Container, PodSet, PodTemplate
from gpuconsole.model.prices import Prices
from gpuconsole.model.resources import GPU
from gpuconsole.model.state import ClusterState
from gpuconsole.model.telemetry import GpuMetric, MeasuredDevice, NodeTelemetry
from gpuconsole.model.workloads import Admission, PodSetAssignment, Workload
from tests.tools.bench.report import Report, cpu

PODS, GPUS = 10_000, 8
NODES = PODS // GPUS
EVENTS = 100_000
START = 1_767_600_000_000_000
TEMPLATE = PodTemplate(containers=(Container(requests={GPU: 1}),))


def costs(report: Report) -> None:
    """Allocation of 10,000 pods, each a workload, on 1,250 nodes: pods end and others start, GPUs are measured."""
    state = ClusterState(START)
    for number in range(NODES):
        allocatable = {GPU: GPUS, "cpu": 96_000}
        labels = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "topology.kubernetes.io/zone": f"z{number % 3}"}
        state.apply(
            Applied(START, Node(name=f"n{number}", labels=labels, capacity=allocatable, allocatable=allocatable))
        )
    for number in range(PODS):
        for event in _started(START, number, number):
            state.apply(event)
    begin = state.freeze()
    events = [*_changes()]
    rates, drains, sums = [], [], []
    with uncollected():
        for _ in range(report.runs):
            allocator = CostAllocator(begin, Prices())
            allocator.advance(START + 1)
            rates.append(len(events) / cpu(partial(_note, allocator, events)))
            allocator.drain()
            drains.append(cpu(partial(_booked, allocator, 30 * SECOND)))
            rows = [row for _ in range(24) for row in _booked(allocator, HOUR)]
            sums.append(cpu(partial(cost_summary, rows, CostBy.TEAM, (START, allocator.time))) / len(rows))
    report.rate(f"costs over time: events allocated, {PODS:,} pods", statistics.median(rates))
    report.time("  booking and draining all nodes", statistics.median(drains))
    report.time("  summing a million rows by team", 1_000_000 * statistics.median(sums))


def _note(allocator: CostAllocator, events: Iterable[Event]) -> None:
    for event in events:
        allocator.note(event)


def _booked(allocator: CostAllocator, span: Span) -> tuple[CostHour, ...]:
    allocator.advance(allocator.time + span)
    return allocator.drain()


def _started(now: int, number: int, place: int) -> Iterator[Event]:
    """A workload is admitted, and its pod is created, bound to the GPU `place`, and runs."""
    namespace = f"team-{number % 40}"
    admission = Admission(cluster_queue=namespace, pod_sets=(PodSetAssignment(usage={GPU: 1}),))
    waiting = Workload(namespace=namespace, name=f"w{number}", queue="lq", pod_sets=(PodSet(template=TEMPLATE),))
    pending = Pod(namespace=namespace, name=f"p{number}", workload=waiting.key, template=TEMPLATE)
    bound = replace(pending, node=f"n{place // GPUS}", gpus=(place % GPUS,), bound=now)
    yield Applied(now, waiting)
    yield Applied(now, replace(waiting, admission=admission))
    yield Applied(now, pending)
    yield Applied(now, bound)
    yield Applied(now, replace(bound, phase=PodPhase.RUNNING, started=now))


def _changes() -> Iterator[Event]:
    """Ends and starts of pods, of which each tenth is evicted, and telemetry of as many nodes."""
    devices = tuple(MeasuredDevice(gpu=index) for index in range(GPUS))
    now, count, number = START, 0, 0
    while count < EVENTS:
        now += SECOND // 10
        place = number * 7919 % PODS
        newest = number + PODS if number >= PODS else place
        owner, key = f"team-{newest % 40}/w{newest}", f"team-{newest % 40}/p{newest}"
        levels = {GpuMetric.UTILISATION: tuple(float((number * 31 + index * 17) % 101) for index in range(GPUS))}
        found: list[Event] = [
            Applied(now, NodeTelemetry(name=f"n{number % NODES}", time=now, devices=devices, columns=levels)),
            Deleted(now, "pods", key),
            Deleted(now, "workloads", owner),
            *_started(now, number + 2 * PODS, place),
        ]
        if number % 10 == 0:
            found.insert(
                1, HistoryEvent(time=now, what=HistoryEventKind.EVICTED, workload=owner, lost_gpu_seconds=600.0)
            )
        yield from found
        count += len(found)
        number += 1
