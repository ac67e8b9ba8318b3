"""Random draws by name, and distributions of latencies and durations.

Random numbers by name: each draw has its own generator, seeded by the simulation's seed and the draw's name.

Draws do not depend on their order, so two futures of one cluster (with and without a submission, say) have the same
arrivals and run times, and differ only by the effect of the submission.

Latencies of the controllers' steps, as distributions measured on a real control plane.

The batching of requeues is a separate rule, not a latency: `KueueConfig.requeue_interval`, `SimPolicy.wake_up_batch`.
"""

from hashlib import blake2b
from math import log
from random import Random
from typing import Literal, TypeAlias

from msgspec import Struct

from gpuconsole.model.clock import HOUR, MILLISECOND, SECOND, Span


def draw(seed: int, *names: object) -> Random:
    """The generator for one named draw."""
    return Random("/".join(map(str, (seed, *names))))


def uid(seed: int, *names: object) -> str:
    """A uid in the API server's form, the same for the same names."""
    return _dashed(_digest(seed, names))


def ordered_uid(seed: int, time: int, serial: int, name: str) -> str:
    """A uid that sorts by time, then by serial number: uids break ties between workloads of the same second."""
    return _dashed(f"{time:014x}{serial % 0x10000:04x}{_digest(seed, (name, time))[:14]}")


def _digest(seed: int, names: tuple[object, ...]) -> str:
    return blake2b("/".join(map(str, (seed, *names))).encode(), digest_size=16).hexdigest()


def _dashed(text: str) -> str:
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


Step: TypeAlias = Literal[
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

    def of(self, step: Step) -> LatencyDistribution:
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
