"""A gang of 64 pods on 5,000 nodes of 8 GPUs, of which half are in use: one pass of an engine of sessions."""

import gc
from collections.abc import Callable, Iterator
from functools import partial

from msgspec.structs import replace

from gpuconsole.model.cluster import Container, Node, Pod, PodPhase, PodTemplate
from gpuconsole.model.decisions import Bind
from gpuconsole.model.kai import EVERYTHING, KaiQueue
from gpuconsole.model.objects import Object
from gpuconsole.model.quantity import GPU
from gpuconsole.scheduling.kai.engine import KaiPlacement
from gpuconsole.scheduling.kai.policy import KaiPolicy
from gpuconsole.scheduling.placement import PlacementEngine
from tests.tools.bench.report import Report, cpu

NODES, PODS = 5_000, 64
ENGINES: dict[str, Callable[[], PlacementEngine]] = {"KAI": lambda: KaiPlacement(KaiPolicy(default_queue="team"))}


def gangs(report: Report) -> None:
    """The pods are equal, or every one asks for another amount of CPU, so that none is evaluated as another was."""
    for name, make in ENGINES.items():
        for alike, bar in ((True, 0.2), (False, 1.0)):
            seconds = []
            for _ in range(report.runs):
                engine = make()
                for thing in _cluster(alike):
                    engine.apply(thing, 0)
                gc.collect()
                seconds.append(cpu(partial(_start, engine)))
            text = f"{name}: a gang of {PODS} {'equal' if alike else 'different'} pods on {NODES:,} nodes"
            report.time(text, sorted(seconds)[len(seconds) // 2], bar=bar)


def _start(engine: PlacementEngine) -> None:
    assert sum(isinstance(decision, Bind) for decision in engine.schedule(1)) == PODS


def _cluster(alike: bool) -> Iterator[Object]:
    room = {"cpu": 128_000, "memory": 2**40, GPU: 8, "pods": 110}
    for number in range(NODES):
        yield Node(name=f"n{number:04}", labels={"nvidia.com/gpu.memory": "80000"}, allocatable=room)
    yield KaiQueue(name="team", gpu=EVERYTHING, cpu=EVERYTHING, memory=EVERYTHING)
    for number in range(NODES // 2):
        pod = _pod(f"old-{number:04}", 8, 16_000)
        yield replace(pod, node=f"n{number:04}", phase=PodPhase.RUNNING)
    for number in range(PODS):
        yield _pod(f"new-{number:02}", 8, 16_000 + (0 if alike else number), gang="new", size=PODS)


def _pod(name: str, gpus: int, milli: int, gang: str = "", size: int = 0) -> Pod:
    template = PodTemplate(containers=(Container(requests={"cpu": milli, GPU: gpus}),))
    return Pod(name=name, template=template, gang=gang, gang_size=size)
