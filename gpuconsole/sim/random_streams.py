"""Random numbers by name: each draw has its own generator, seeded by the simulation's seed and the draw's name.

Draws do not depend on their order, so two futures of one cluster (with and without a submission, say) have the same
arrivals and run times, and differ only by the effect of the submission.
"""

from hashlib import blake2b
from math import log
from random import Random

from msgspec import Struct

from gpuconsole.model.clock import HOUR, SECOND, Span


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
