"""One answer to why something waits, as data."""

from msgspec import Struct

from gpuconsole.insight.positions import Position
from gpuconsole.insight.reasons import Code
from gpuconsole.insight.shortage import Holder, Remedy
from gpuconsole.model.clock import Time

KUEUE = "Kueue"
KUBE_SCHEDULER = "kube-scheduler"
KUBELET = "kubelet"
API_SERVER = "kube-apiserver"


class Explanation(Struct, frozen=True, kw_only=True):
    """One answer: the dominant reason, its evidence, its arithmetic, and the next step."""

    subject: str
    code: Code
    headline: str
    """One plain sentence."""
    text: str = ""
    """The scheduler's own words, verbatim; empty if it wrote none."""
    source: str = ""
    """Who wrote `text`: Kueue or a scheduler; empty if the answer was read from the objects themselves."""
    queue: str = ""
    """ClusterQueue."""
    since: Time | None = None
    """Since when the reason is what it is: the age of the evidence."""
    position: Position | None = None
    parked: bool = False
    lines: tuple[str, ...] = ()
    """The arithmetic, a line for each flavor or node reason."""
    holders: tuple[Holder, ...] = ()
    """Who holds what it wants, the largest first."""
    remedies: tuple[Remedy, ...] = ()


def fine(key: str, headline: str) -> Explanation:
    """What does not wait."""
    return Explanation(subject=key, code=Code.NOT_WAITING, headline=headline)
