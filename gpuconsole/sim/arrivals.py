"""Random job arrivals: each stream models a team's submissions, and its n-th job is the same for the same seed.

Arrivals are a Poisson process whose rate follows the hour of the day (UTC). Each job is drawn independently (see
`random_streams`), so a stream can be continued from its number alone.
"""

import re
from collections.abc import Mapping
from random import Random

from msgspec import Struct, field

from gpuconsole.model.clock import HOUR, Span, Time
from gpuconsole.model.job import Job
from gpuconsole.model.labels import NO_LABELS, Toleration
from gpuconsole.model.pod_template import Container, PodSet, PodTemplate
from gpuconsole.model.resources import CPU, GPU, MEMORY, Resources
from gpuconsole.sim.run_times import LogNormal, draw

GIB = 2**30
ALWAYS = (1.0,) * 24
_TRIES = 1000
"""Number of draws after which work has outlasted all that its stream produces."""


class JobSize(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job size that a stream submits."""

    pods: int = 1
    gpus: int = 1
    """GPUs a pod."""
    weight: float = 1.0
    resources: Resources = field(default_factory=dict)
    """Requests of a pod besides GPUs; none means 8 CPUs and 64 GiB a GPU, or 1 CPU and 4 GiB without GPUs."""
    node_selector: Mapping[str, str] = NO_LABELS
    min_pods: int | None = None
    """Partial admission may shrink the job to this many."""
    kinds: Mapping[str, float] = field(default_factory=dict)
    """Weights of job kinds for this size; none means the stream's."""
    duration: LogNormal | None = None
    """None means the stream's."""


class ArrivalStream(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A stream of job submissions: sizes, rate, queue and run times."""

    name: str
    """Jobs are named after it: `NAME-1`, `NAME-2` …"""
    namespace: str
    queue: str = ""
    per_hour: float = 1.0
    """Mean arrivals an hour where `by_hour` is 1."""
    by_hour: tuple[float, ...] = ALWAYS
    """24 factors, one for each hour of the day."""
    kinds: Mapping[str, float] = field(default_factory=lambda: {"Job": 1.0})
    shapes: tuple[JobSize, ...] = (JobSize(),)
    duration: LogNormal = LogNormal(sigma=0.8)
    checkpoint: LogNormal | None = None
    """Interval at which jobs write checkpoints; None: never."""
    checkpointed: float = 1.0
    """Fraction of the jobs that write checkpoints."""
    priorities: Mapping[str, float] = field(default_factory=dict)
    """Weights of WorkloadPriorityClasses; none means no class."""
    pod_priority_class: str = ""
    tolerations: tuple[Toleration, ...] = ()
    grace: Span | None = None
    at_start: int = 0
    """Jobs present at the start of the simulation, with part of their work done."""
    first: Span = 0
    """No arrivals before this much time has passed."""
    image: str = "registry.example/train:1"


def next_arrival(stream: ArrivalStream, seed: int, number: int, after: Time) -> Time | None:
    """Time of the stream's job with this number, given that of the previous one (thinning); None for never."""
    peak = stream.per_hour * max(stream.by_hour, default=0.0)
    if peak <= 0:
        return None
    random = draw(seed, "arrival", stream.name, number)
    time = after
    while True:
        time += max(1, round(random.expovariate(peak) * HOUR))
        rate = stream.per_hour * stream.by_hour[(time // HOUR) % 24 % len(stream.by_hour)]
        if random.random() * peak < rate:
            return time


def job(stream: ArrivalStream, seed: int, number: int) -> Job:
    """The stream's job with this number."""
    random = draw(seed, "job", stream.name, number)
    shape = random.choices(stream.shapes, [shape.weight for shape in stream.shapes])[0]
    kind = _pick(random, shape.kinds or stream.kinds)
    duration = (shape.duration or stream.duration).sample(random)
    checkpoint = None
    if stream.checkpoint is not None and random.random() < stream.checkpointed:
        checkpoint = stream.checkpoint.sample(random)
    if number <= stream.at_start:
        duration = _left(duration, random)
    return Job(
        kind=kind,
        namespace=stream.namespace,
        name=f"{stream.name}-{number}",
        queue=stream.queue,
        workload_priority_class=_pick(random, stream.priorities) if stream.priorities else "",
        pod_sets=_pod_sets(stream, shape, kind),
        duration=duration,
        checkpoint_interval=checkpoint,
    )


def number_of(stream: ArrivalStream, key: str) -> int | None:
    """The number in the stream of the job or Workload with this key; None if it is not from this stream."""
    namespace, _, name = key.rpartition("/")
    if namespace.rpartition("/")[2] != stream.namespace or f"{stream.name}-" not in name:
        return None
    own = re.fullmatch(rf"(?:\w+-)?{re.escape(stream.name)}-(\d{{1,9}})(?:-[0-9a-f]{{5}})?", name)
    return int(own[1]) if own else None


def run_time(stream: ArrivalStream, number: int, gpus: int, known: Span, random: Random) -> Span:
    """Draw the total duration of the stream's job of this number, given that it exceeds `known`.

    It is drawn from the sizes with `gpus` GPUs in all, or from all sizes if none has that many. If all draws are too
    short, it is `known` and up to as much again.
    """
    shapes = [one for one in stream.shapes if one.pods * one.gpus == gpus] or list(stream.shapes)
    weights = [shape.weight for shape in shapes]
    for _ in range(_TRIES):
        shape = random.choices(shapes, weights)[0]
        drawn = (shape.duration or stream.duration).sample(random)
        if number <= stream.at_start:
            drawn = _left(drawn, random)
        if drawn > known:
            return drawn
    return known + max(1, round(known * random.random()))


def _left(duration: Span, random: Random) -> Span:
    """The remaining duration of work at a random moment."""
    return max(1, round(duration * random.random()))


def _pick(random: Random, weights: Mapping[str, float]) -> str:
    return random.choices(list(weights), list(weights.values()))[0]


def _pod_sets(stream: ArrivalStream, shape: JobSize, kind: str) -> tuple[PodSet, ...]:
    """Pod sets as the job's kind names them; a RayJob has a head without GPUs in addition to its workers."""
    worker = _template(stream, shape)
    match kind:
        case "PyTorchJob" if shape.pods > 1:
            others = PodSet(name="worker", count=shape.pods - 1, template=worker)
            return (PodSet(name="master", template=worker), others)
        case "PyTorchJob":
            return (PodSet(name="master", template=worker),)
        case "RayJob":
            head = _template(stream, JobSize(gpus=0, resources={CPU: 4000, MEMORY: 16 * GIB}))
            return (PodSet(name="head", template=head), PodSet(name="workers", count=shape.pods, template=worker))
        case "JobSet":
            return (PodSet(name="workers", count=shape.pods, template=worker),)
        case _:
            return (PodSet(count=shape.pods, min_count=shape.min_pods, template=worker),)


def _template(stream: ArrivalStream, shape: JobSize) -> PodTemplate:
    requests = dict(shape.resources) or {CPU: 8000 * shape.gpus or 1000, MEMORY: (64 * shape.gpus or 4) * GIB}
    if shape.gpus:
        requests[GPU] = shape.gpus
    usual = PodTemplate()
    return PodTemplate(
        containers=(Container(image=stream.image, requests=requests),),
        node_selector=shape.node_selector,
        tolerations=stream.tolerations,
        priority_class=stream.pod_priority_class,
        restart_policy="Never",
        grace_period=usual.grace_period if stream.grace is None else stream.grace,
    )
