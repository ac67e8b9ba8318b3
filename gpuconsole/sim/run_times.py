"""Run times estimated from similar past work: survival curves of a queue's and an owner's history.

Unfinished work counts as well (Kaplan–Meier estimator), so that a queue whose long jobs have not ended yet does not
seem to have short jobs only. Beyond the longest observation, work is expected to last as long again.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping
from math import sqrt
from statistics import NormalDist

from msgspec import Struct

from gpuconsole.model.clock import SECOND, Span, Time
from gpuconsole.sim.distributions import draw

ENOUGH = 20
"""Number of ended runs that a group needs for its own curve to be used."""
NEWEST = 200
"""Number of runs of a group that count: those that began last, ended or not (ended ones alone would be short)."""
SHARED_CHANCE = 0.5
"""Correlation of run times of one owner, queue and size (Gaussian copula): one short job often comes with others."""
STRETCH = 20
"""Longest duration drawn, as a multiple of the longest one observed."""


class WorkKind(Struct, frozen=True):
    """Owner, ClusterQueue and number of GPUs of a piece of work."""

    owner: str
    queue: str
    gpus: int


class ObservedRun(Struct, frozen=True):
    """A past or running piece of work, with its duration so far."""

    kind: WorkKind
    length: Span
    ended: bool = True


class Curve(Struct, frozen=True):
    """A survival curve: the fraction of work that lasts longer than each of these durations, ascending."""

    lengths: tuple[Span, ...]
    lasting: tuple[float, ...]
    ends: int
    """Number of ended runs that it is based on."""

    def lasts(self, length: Span) -> float:
        """The fraction of work that lasts longer than this."""
        place = bisect_right(self.lengths, length)
        part = self.lasting[place - 1] if place else 1.0
        if place < len(self.lengths) or part == 0.0 or not place:
            return part
        return part * self.lengths[-1] / max(length, self.lengths[-1])

    def length(self, chance: float, known: Span = 0) -> Span:
        """The duration exceeded with probability `chance` (0 to 1) by work that lasts longer than `known`."""
        part = chance * self.lasts(known)
        longest = self.lengths[-1]
        if part > 0.0 and part >= self.lasting[-1]:
            found = self.lengths[bisect_left(self.lasting, -part, key=lambda lasting: -lasting)]
            if found > known:
                return found
        # Beyond the longest observation.
        base = max(longest, known)
        return round(base * min(STRETCH, 1.0 / max(chance, 1.0 / STRETCH)))


class RunTimes(Struct, frozen=True, kw_only=True):
    """Run times to draw from, and durations so far of work under way."""

    curves: Mapping[str, Curve] = {}
    known: Mapping[str, Span] = {}
    """Running group → work done so far, which its drawn duration exceeds."""
    usual: Span = 3600 * SECOND
    """Typical duration where no work has ended yet."""
    stated_from: Time | None = None
    """Jobs created later take as long as they state; None: the durations of all jobs are drawn."""

    def draws(self, created: Time) -> bool:
        """True for work whose duration is drawn, by the creation time of its job."""
        return self.stated_from is None or created <= self.stated_from

    def curve(self, kind: WorkKind) -> tuple[str, Curve | None]:
        """The narrowest group with enough observations, by name, and its curve; None where nothing has ended yet."""
        for name in groups(kind):
            curve = self.curves.get(name)
            if curve is not None and (curve.ends >= ENOUGH or name == CLUSTER):
                return name, curve
        return CLUSTER, None

    def draw(self, seed: int, group: str, kind: WorkKind) -> Span:
        """Total duration of a running group's work; the same for the same seed."""
        chance, known = _chance(seed, group, kind), self.known.get(group, 0)
        _, curve = self.curve(kind)
        if curve is None:
            return max(1, round((known + self.usual) * (0.5 + chance)), known + 1)
        return max(1, curve.length(chance, known))


CLUSTER = "cluster"
_NORMAL = NormalDist()


def _chance(seed: int, group: str, kind: WorkKind) -> float:
    """A running group's quantile, uniform over 0 to 1, correlated with that of similar work."""
    common = draw(seed, "run times", kind.owner, kind.queue, kind.gpus.bit_length()).gauss()
    own = draw(seed, "run time", group).gauss()
    return _NORMAL.cdf(sqrt(SHARED_CHANCE) * common + sqrt(1 - SHARED_CHANCE) * own)


def groups(kind: WorkKind) -> Iterator[str]:
    """The groups of a piece of work, narrowest first: owner, queue and size; queue and size; queue; size; all."""
    size = _size(kind.gpus)
    yield f"owner {kind.owner}, queue {kind.queue}, {size}"
    yield f"queue {kind.queue}, {size}"
    yield f"queue {kind.queue}"
    yield size
    yield CLUSTER


def _size(gpus: int) -> str:
    """Size class of work: the number of binary digits of its GPU count."""
    least = 1 << gpus.bit_length() >> 1
    if least <= 1:
        return "1 GPU" if gpus else "0 GPUs"
    return f"{least} to {2 * least - 1} GPUs"


def learn(past: Iterable[ObservedRun], known: Mapping[str, Span]) -> RunTimes:
    """Compute the survival curves of all groups from past runs, in order of start times."""
    grouped: dict[str, list[ObservedRun]] = {}
    for run in past:
        for name in groups(run.kind):
            grouped.setdefault(name, []).append(run)
    curves = {name: curve for name, runs in grouped.items() if (curve := _curve(runs)) is not None}
    return RunTimes(curves=curves, known=known)


def _curve(runs: list[ObservedRun]) -> Curve | None:
    """Kaplan–Meier estimator: at each end, the fraction of remaining work that continues."""
    part = 1.0
    lengths: list[Span] = []
    lasting: list[float] = []
    counted = sorted(runs[-NEWEST:], key=lambda run: (run.length, not run.ended))
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
    return Curve(tuple(lengths), tuple(lasting), ends) if ends else None
