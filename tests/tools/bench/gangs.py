"""A gang of 64 pods on 5,000 nodes of 8 GPUs: one pass of an engine of sessions."""

import gc
from collections.abc import Callable, Iterator
from functools import partial

from msgspec.structs import replace

from gpuconsole.model.cluster import Node, Pod, PodPhase
from gpuconsole.model.events import Bind
from gpuconsole.model.kai import EVERYTHING, KaiQueue
from gpuconsole.model.objects import Object
from gpuconsole.model.pod_template import Container, PodTemplate
from gpuconsole.model.resources import GPU
from gpuconsole.scheduling.kai.config import KaiPolicy
from gpuconsole.scheduling.kai.engine import KaiPlacement
from gpuconsole.scheduling.kube.profile import PlacementPolicy, SchedulerProfile
from gpuconsole.scheduling.kube.session import KubePlacement
from gpuconsole.scheduling.placement import PlacementEngine
from gpuconsole.scheduling.volcano.config import VolcanoPolicy
from gpuconsole.scheduling.volcano.engine import VolcanoPlacement
from tests.tools.bench.report import Report, cpu

NODES, PODS = 5_000, 64
ENGINES: dict[str, Callable[[], PlacementEngine]] = {
    "KAI": lambda: KaiPlacement(KaiPolicy(default_queue="team")),
    "Volcano": lambda: VolcanoPlacement(VolcanoPolicy()),
    "kube-scheduler": lambda: KubePlacement(PlacementPolicy(profile=SchedulerProfile())),
    "kube-scheduler, packing": lambda: KubePlacement(PlacementPolicy()),
}


LOADS = (
    ("equal pods", True, 0, 0.2),
    ("pods of which no two are equal", False, 0, 1.0),
    ("equal pods, half of the nodes in use", True, NODES // 2, None),
)


def gangs(report: Report) -> None:
    """One pass, in which all pods start; unequal ones differ in what they ask for of CPU."""
    for name, make in ENGINES.items():
        for load, alike, running, bar in LOADS:
            seconds = []
            for _ in range(report.runs):
                engine = make()
                for thing in _cluster(alike, running):
                    engine.apply(thing, 0)
                gc.collect()
                seconds.append(cpu(partial(_start, engine)))
            text = f"{name}: a gang on {NODES:,} nodes, {PODS} {load}"
            report.time(text, sorted(seconds)[len(seconds) // 2], bar=bar)


def _start(engine: PlacementEngine) -> None:
    assert sum(isinstance(decision, Bind) for decision in engine.schedule(1)) == PODS


def _cluster(alike: bool, running: int) -> Iterator[Object]:
    room = {"cpu": 128_000, "memory": 2**40, GPU: 8, "pods": 110}
    for number in range(NODES):
        yield Node(name=f"n{number:04}", labels={"nvidia.com/gpu.memory": "80000"}, allocatable=room)
    yield KaiQueue(name="team", gpu=EVERYTHING, cpu=EVERYTHING, memory=EVERYTHING)
    for number in range(running):
        pod = _pod(f"old-{number:04}", 8, 16_000)
        yield replace(pod, node=f"n{number:04}", phase=PodPhase.RUNNING)
    for number in range(PODS):
        yield _pod(f"new-{number:02}", 8, 16_000 + (0 if alike else number), gang="new", size=PODS)


def _pod(name: str, gpus: int, milli: int, gang: str = "", size: int = 0) -> Pod:
    template = PodTemplate(containers=(Container(requests={"cpu": milli, GPU: gpus}),))
    return Pod(name=name, template=template, gang=gang, gang_size=size)
