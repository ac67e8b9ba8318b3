"""The explanation of why a workload, job or pod is pending, as data."""

from msgspec import Struct, field

from gpuconsole.insight.positions import Position
from gpuconsole.insight.reasons import PendingReason
from gpuconsole.insight.shortage import Holder, Remedy
from gpuconsole.model.clock import Time

KUEUE = "Kueue"
KUBE_SCHEDULER = "kube-scheduler"
KUBELET = "kubelet"
API_SERVER = "kube-apiserver"


class PendingExplanation(Struct, frozen=True, kw_only=True):
    """One answer: the dominant reason, its evidence, its arithmetic, and the next step."""

    subject: str
    code: PendingReason
    headline: str
    """One sentence."""
    text: str = ""
    """The scheduler's message, verbatim; empty if it wrote none."""
    source: str = ""
    """The component that wrote `text`: Kueue or a scheduler; empty if the answer comes from the objects themselves."""
    queue: str = ""
    """ClusterQueue."""
    since: Time | None = None
    """Start of the condition that gives the reason."""
    position: Position | None = None
    inadmissible: bool = field(default=False, name="parked")
    lines: tuple[str, ...] = ()
    """The arithmetic, a line for each flavor or node reason."""
    holders: tuple[Holder, ...] = ()
    """Workloads that hold the quota it needs, the largest first."""
    remedies: tuple[Remedy, ...] = ()


def not_waiting(key: str, headline: str) -> PendingExplanation:
    """Return an explanation for work that is not pending."""
    return PendingExplanation(subject=key, code=PendingReason.NOT_WAITING, headline=headline)
