"""Run times of work, latencies of controllers, and arrivals of jobs, drawn at random by name.

Each draw has its own generator, seeded by the simulation's seed and the draw's name (`random_for`). Draws do not depend
on their order, so two forks of one cluster (with and without a submission, say) have the same arrivals and run times,
and differ only by the effect of the submission.

Run times are drawn from survival curves of similar past work. Unfinished work counts as well (Kaplan–Meier estimator);
beyond the longest observation, work is expected to last as long again. Latencies are distributions measured on a real
control plane, without the batching of requeues (`KueueConfig.requeue_interval`, `SimPolicy.wake_up_batch`). Arrivals
are a Poisson process whose rate follows the hour of the day (UTC); a stream continues from its last number alone.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from math import log, sqrt
from random import Random
from statistics import NormalDist
from typing import Literal, TypeAlias

from msgspec import Struct, field

from gpuconsole.model.clock import HOUR, MILLISECOND, SECOND, Span, Time
from gpuconsole.model.job import Job
from gpuconsole.model.labels import NO_LABELS, Toleration
from gpuconsole.model.pod_template import Container, PodSet, PodTemplate
from gpuconsole.model.resources import CPU, GPU, MEMORY, Resources


def random_for(seed: int, *names: object) -> Random:
    """Return the random generator of the draw with these names: the same seed and names give the same numbers."""
    return Random("/".join(map(str, (seed, *names))))


def named_uid(seed: int, *names: object) -> str:
    """A uid in the API server's form, the same for the same names."""
    return _format_uid(_digest(seed, names))


def ordered_uid(seed: int, time: int, serial: int, name: str) -> str:
    """A uid that sorts by time, then by serial number: uids break ties between workloads of the same second."""
    return _format_uid(f"{time:014x}{serial % 0x10000:04x}{_digest(seed, (name, time))[:14]}")


def _digest(seed: int, names: tuple[object, ...]) -> str:
    return blake2b("/".join(map(str, (seed, *names))).encode(), digest_size=16).hexdigest()


def _format_uid(text: str) -> str:
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


class LogNormal(Struct, frozen=True, kw_only=True):
    """A log-normal distribution of durations; `sigma` 0 always gives the median."""

    median: Span = HOUR
    sigma: float = 0.0
    """Spread of the logarithm: 0.7 puts two thirds of all draws between half and twice the median."""
    least: Span = SECOND
    most: Span = 1000 * HOUR

    def sample(self, random: Random) -> Span:
        """Draw a duration between `least` and `most`; the median if `sigma` is 0."""
        if self.sigma == 0.0:
            return self.median
        drawn = random.lognormvariate(log(self.median / SECOND), self.sigma)
        return max(self.least, min(self.most, round(drawn * SECOND)))


class LatencyDistribution(Struct, frozen=True, kw_only=True):
    """A latency as quantiles, linear between them and from 0 to `p5`; all five equal make a constant.

    Raises ValueError if a quantile is negative or smaller than the one before it.
    """

    p5: Span
    p50: Span
    p90: Span
    p99: Span
    max: Span

    def __post_init__(self) -> None:
        quantiles = (0, self.p5, self.p50, self.p90, self.p99, self.max)
        if list(quantiles) != sorted(quantiles):
            raise ValueError("quantiles must not decrease: 0s <= p5 <= p50 <= p90 <= p99 <= max")

    @classmethod
    def constant(cls, span: Span) -> "LatencyDistribution":
        """Return the distribution that always gives `span`."""
        return cls(p5=span, p50=span, p90=span, p99=span, max=span)

    def sample(self, random: Random) -> Span:
        """Draw a latency, at least 1 µs, so that a step never coincides with its cause.

        Takes one number from `random`, whatever the distribution.
        """
        probability = random.random()
        if self.p5 == self.max:
            return max(1, self.max)
        below, least = 0.0, 0
        for upto, most in ((0.05, self.p5), (0.5, self.p50), (0.9, self.p90), (0.99, self.p99), (1.0, self.max)):
            if probability <= upto:
                return max(1, least + round((most - least) * (probability - below) / (upto - below)))
            below, least = upto, most
        return max(1, self.max)


LatencyStep: TypeAlias = Literal[
    "scheduling_cycle",
    "job_unsuspend",
    "pod_creation",
    "bind",
    "start",
    "job_suspend",
    "pod_deletion",
    "status_update",
    "workload_reconcile",
]
"""The name of a field of `Latencies`."""


class Latencies(Struct, frozen=True, kw_only=True):
    """Latency distribution of each step of the controllers.

    An evicted Job with active pods releases its quota after `job_suspend` + `status_update` + `workload_reconcile`, one
    without active pods after `job_suspend` + `workload_reconcile`. `pod_deletion` runs in parallel to `status_update`:
    the quota does not wait for pods to end (Kueue: `IsActive` of the batch/v1 Job integration).
    """

    scheduling_cycle: LatencyDistribution
    """Start of one of Kueue's scheduling cycles → start of the next one, while it has heads to try."""
    job_unsuspend: LatencyDistribution
    """Workload's QuotaReserved=True → Kueue sets the job's suspend to false."""
    pod_creation: LatencyDistribution
    """Job's suspend is false → the Job controller creates a pod."""
    bind: LatencyDistribution
    """Pod created → kube-scheduler binds it, where it has a node at the first attempt."""
    start: LatencyDistribution
    """Pod bound → ready, without image pulls and the container's own start."""
    job_suspend: LatencyDistribution
    """Workload's Evicted=True → Kueue sets the job's suspend to true."""
    pod_deletion: LatencyDistribution
    """Job's suspend is true → the Job controller deletes a pod (deletionTimestamp); its grace period begins then."""
    status_update: LatencyDistribution
    """Job's suspend is true → the Job controller writes that no pod is active (terminating pods are not)."""
    workload_reconcile: LatencyDistribution
    """No pod of the suspended job is active → Kueue sets the Workload's QuotaReserved to false."""

    def distribution(self, step: LatencyStep) -> LatencyDistribution:
        """Return the distribution of one step."""
        found: LatencyDistribution = getattr(self, step)
        return found


def _measured(p5: int, p50: int, p90: int, p99: int, most: int) -> LatencyDistribution:
    """A distribution from quantiles in milliseconds."""
    return LatencyDistribution(
        p5=p5 * MILLISECOND,
        p50=p50 * MILLISECOND,
        p90=p90 * MILLISECOND,
        p99=p99 * MILLISECOND,
        max=most * MILLISECOND,
    )


MEASURED = Latencies(
    scheduling_cycle=_measured(8, 48, 218, 289, 299),
    job_unsuspend=_measured(7, 23, 64, 160, 250),
    pod_creation=_measured(6, 49, 791, 1334, 1759),
    bind=_measured(3, 8, 23, 51, 82),
    start=_measured(10, 21, 56, 136, 191),
    job_suspend=_measured(10, 29, 112, 228, 506),
    pod_deletion=_measured(28, 405, 1325, 1905, 2101),
    status_update=_measured(620, 1083, 1707, 2339, 2476),
    workload_reconcile=_measured(25, 61, 236, 477, 645),
)
"""Measured with Kueue 0.19.2 on Kubernetes 1.36 (API server, etcd, controller manager and scheduler sharing 2 cores).

Two recordings of 5 minutes, classical preemption and fair sharing, pooled: 40 nodes of 8 GPUs near 100% load, 341
batch/v1 Jobs, 423 evictions. Nodes and pods were KWOK's, so that `start` holds neither image pulls nor the start of
containers. `scheduling_cycle` is an estimate from the times at which decisions were written: gaps of 0.3 s and more
are left out, as cycles that write nothing lie within them. See docs/explanation/time.md.
"""

DEFAULT_LATENCIES: Latencies | None = MEASURED
"""Latencies of every simulation whose scenario names none; to be read as an attribute, as the tests set it to None."""


MIN_ENDED_RUNS = 20
"""Number of ended runs that a group needs for its own curve to be used."""
MAX_RUNS_PER_GROUP = 200
"""Number of runs of a group that count: those that began last, ended or not (ended ones alone would be short)."""
RUN_TIME_CORRELATION = 0.5
"""Correlation of run times of one owner, queue and size (Gaussian copula): short jobs often come together."""
MAX_STRETCH = 20
"""Longest duration drawn, as a multiple of the longest one observed."""


class WorkKind(Struct, frozen=True):
    """Owner, ClusterQueue and number of GPUs of a piece of work: runs are similar if these are equal."""

    owner: str
    queue: str
    gpus: int


class ObservedRun(Struct, frozen=True):
    """A past or running piece of work, from which run times of similar work are learned."""

    kind: WorkKind
    length: Span
    ended: bool = True


class SurvivalCurve(Struct, frozen=True):
    """A survival curve: the fraction of work that lasts longer than each of these durations, ascending."""

    lengths: tuple[Span, ...]
    lasting: tuple[float, ...]
    ends: int
    """Number of ended runs that it is based on."""

    def fraction_longer_than(self, length: Span) -> float:
        """The fraction of work that lasts longer than this."""
        place = bisect_right(self.lengths, length)
        part = self.lasting[place - 1] if place else 1.0
        if place < len(self.lengths) or part == 0.0 or not place:
            return part
        return part * self.lengths[-1] / max(length, self.lengths[-1])

    def duration_at(self, chance: float, known: Span = 0) -> Span:
        """The total duration, from the start, that work exceeds with probability `chance` (0 to 1).

        `known` is how long the work has already run: the probability is that of work which lasts longer than this.
        """
        part = chance * self.fraction_longer_than(known)
        longest = self.lengths[-1]
        if part > 0.0 and part >= self.lasting[-1]:
            found = self.lengths[bisect_left(self.lasting, -part, key=lambda lasting: -lasting)]
            if found > known:
                return found
        # Beyond the longest observation.
        base = max(longest, known)
        return round(base * min(MAX_STRETCH, 1.0 / max(chance, 1.0 / MAX_STRETCH)))


class RunTimes(Struct, frozen=True, kw_only=True):
    """Run times to draw from, and durations so far of work under way."""

    curves: Mapping[str, SurvivalCurve] = {}
    known: Mapping[str, Span] = {}
    """Running group → work done so far, which its drawn duration exceeds."""
    usual: Span = 3600 * SECOND
    """Typical duration where no work has ended yet."""
    stated_from: Time | None = None
    """Jobs created later take as long as they state; None: the durations of all jobs are drawn."""

    def is_drawn(self, created: Time) -> bool:
        """True if the duration of a job created at this time is drawn, not taken as stated."""
        return self.stated_from is None or created <= self.stated_from

    def curve(self, kind: WorkKind) -> tuple[str, SurvivalCurve | None]:
        """Name and curve of the narrowest group with enough ended runs; no curve if no work has ended."""
        for name in group_names(kind):
            curve = self.curves.get(name)
            if curve is not None and (curve.ends >= MIN_ENDED_RUNS or name == CLUSTER):
                return name, curve
        return CLUSTER, None

    def draw(self, seed: int, group: str, kind: WorkKind) -> Span:
        """Draw the total duration of a running group's work (`group` is its key); the same for the same seed."""
        chance, known = _quantile(seed, group, kind), self.known.get(group, 0)
        _, curve = self.curve(kind)
        if curve is None:
            return max(1, round((known + self.usual) * (0.5 + chance)), known + 1)
        return max(1, curve.duration_at(chance, known))


CLUSTER = "cluster"
_NORMAL = NormalDist()


def _quantile(seed: int, group: str, kind: WorkKind) -> float:
    """A running group's quantile, uniform over 0 to 1, correlated with that of similar work."""
    common = random_for(seed, "run times", kind.owner, kind.queue, kind.gpus.bit_length()).gauss()
    own = random_for(seed, "run time", group).gauss()
    return _NORMAL.cdf(sqrt(RUN_TIME_CORRELATION) * common + sqrt(1 - RUN_TIME_CORRELATION) * own)


def group_names(kind: WorkKind) -> Iterator[str]:
    """Names of the groups whose curves apply to a piece of work, from owner, queue and size to all work."""
    size = _size_class(kind.gpus)
    yield f"owner {kind.owner}, queue {kind.queue}, {size}"
    yield f"queue {kind.queue}, {size}"
    yield f"queue {kind.queue}"
    yield size
    yield CLUSTER


def _size_class(gpus: int) -> str:
    """Size class of work: the number of binary digits of its GPU count."""
    least = 1 << gpus.bit_length() >> 1
    if least <= 1:
        return "1 GPU" if gpus else "0 GPUs"
    return f"{least} to {2 * least - 1} GPUs"


def learn_run_times(past: Iterable[ObservedRun], known: Mapping[str, Span]) -> RunTimes:
    """Compute the survival curves of all groups from past runs, in order of start times."""
    grouped: dict[str, list[ObservedRun]] = {}
    for run in past:
        for name in group_names(run.kind):
            grouped.setdefault(name, []).append(run)
    curves = {name: curve for name, runs in grouped.items() if (curve := _survival_curve(runs)) is not None}
    return RunTimes(curves=curves, known=known)


def _survival_curve(runs: list[ObservedRun]) -> SurvivalCurve | None:
    """Kaplan–Meier estimator: at each end, the fraction of remaining work that continues."""
    part = 1.0
    lengths: list[Span] = []
    lasting: list[float] = []
    counted = sorted(runs[-MAX_RUNS_PER_GROUP:], key=lambda run: (run.length, not run.ended))
    left, ends = len(counted), sum(run.ended for run in counted)
    for run in counted:
        if run.ended:
            part *= 1 - 1 / left
            if lengths and lengths[-1] == run.length:
                lasting[-1] = part
            else:
                lengths.append(run.length)
                lasting.append(part)
        left -= 1
    return SurvivalCurve(tuple(lengths), tuple(lasting), ends) if ends else None


GIB = 2**30
ALWAYS = (1.0,) * 24
_TRIES = 1000
"""Number of draws after which work has outlasted all that its stream produces."""


class JobSize(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job size that a stream submits."""

    pods: int = 1
    gpus: int = 1
    """GPUs of each pod."""
    weight: float = 1.0
    resources: Resources = field(default_factory=dict)
    """Requests of a pod besides GPUs; none means 8 CPUs and 64 GiB a GPU, or 1 CPU and 4 GiB without GPUs."""
    node_selector: Mapping[str, str] = NO_LABELS
    min_pods: int | None = None
    """Number of pods to which partial admission may reduce the job; None: it may not."""
    kinds: Mapping[str, float] = field(default_factory=dict)
    """Weights of job kinds for this size; empty: those of the stream."""
    duration: LogNormal | None = None
    """Run times of jobs of this size; None: those of the stream."""


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
    """Weights of the WorkloadPriorityClasses of jobs; empty: jobs have none."""
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
    random = random_for(seed, "arrival", stream.name, number)
    time = after
    while True:
        time += max(1, round(random.expovariate(peak) * HOUR))
        rate = stream.per_hour * stream.by_hour[(time // HOUR) % 24 % len(stream.by_hour)]
        if random.random() * peak < rate:
            return time


def stream_job(stream: ArrivalStream, seed: int, number: int) -> Job:
    """The stream's job with this number."""
    random = random_for(seed, "job", stream.name, number)
    pod_class = random.choices(stream.shapes, [pod_class.weight for pod_class in stream.shapes])[0]
    kind = _weighted_choice(random, pod_class.kinds or stream.kinds)
    duration = (pod_class.duration or stream.duration).sample(random)
    checkpoint = None
    if stream.checkpoint is not None and random.random() < stream.checkpointed:
        checkpoint = stream.checkpoint.sample(random)
    if number <= stream.at_start:
        duration = _remaining_duration(duration, random)
    return Job(
        kind=kind,
        namespace=stream.namespace,
        name=f"{stream.name}-{number}",
        queue=stream.queue,
        workload_priority_class=_weighted_choice(random, stream.priorities) if stream.priorities else "",
        pod_sets=_pod_sets(stream, pod_class, kind),
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


def draw_run_time(stream: ArrivalStream, number: int, gpus: int, known: Span, random: Random) -> Span:
    """Draw the total duration of the stream's job of this number, given that it exceeds `known`.

    It is drawn from the sizes with `gpus` GPUs in all, or from all sizes if none has that many. If all draws are too
    short, it is `known` and up to as much again.
    """
    pod_classes = [one for one in stream.shapes if one.pods * one.gpus == gpus] or list(stream.shapes)
    weights = [pod_class.weight for pod_class in pod_classes]
    for _ in range(_TRIES):
        pod_class = random.choices(pod_classes, weights)[0]
        drawn = (pod_class.duration or stream.duration).sample(random)
        if number <= stream.at_start:
            drawn = _remaining_duration(drawn, random)
        if drawn > known:
            return drawn
    return known + max(1, round(known * random.random()))


def _remaining_duration(duration: Span, random: Random) -> Span:
    """The remaining duration of work at a random moment."""
    return max(1, round(duration * random.random()))


def _weighted_choice(random: Random, weights: Mapping[str, float]) -> str:
    return random.choices(list(weights), list(weights.values()))[0]


def _pod_sets(stream: ArrivalStream, pod_class: JobSize, kind: str) -> tuple[PodSet, ...]:
    """Pod sets as the job's kind names them; a RayJob has a head without GPUs in addition to its workers."""
    worker = _template(stream, pod_class)
    match kind:
        case "PyTorchJob" if pod_class.pods > 1:
            others = PodSet(name="worker", count=pod_class.pods - 1, template=worker)
            return (PodSet(name="master", template=worker), others)
        case "PyTorchJob":
            return (PodSet(name="master", template=worker),)
        case "RayJob":
            head = _template(stream, JobSize(gpus=0, resources={CPU: 4000, MEMORY: 16 * GIB}))
            return (PodSet(name="head", template=head), PodSet(name="workers", count=pod_class.pods, template=worker))
        case "JobSet":
            return (PodSet(name="workers", count=pod_class.pods, template=worker),)
        case _:
            return (PodSet(count=pod_class.pods, min_count=pod_class.min_pods, template=worker),)


def _template(stream: ArrivalStream, pod_class: JobSize) -> PodTemplate:
    requests = dict(pod_class.resources) or {
        CPU: 8000 * pod_class.gpus or 1000,
        MEMORY: (64 * pod_class.gpus or 4) * GIB,
    }
    if pod_class.gpus:
        requests[GPU] = pod_class.gpus
    usual = PodTemplate()
    return PodTemplate(
        containers=(Container(image=stream.image, requests=requests),),
        node_selector=pod_class.node_selector,
        tolerations=stream.tolerations,
        priority_class=stream.pod_priority_class,
        restart_policy="Never",
        grace_period=usual.grace_period if stream.grace is None else stream.grace,
    )
