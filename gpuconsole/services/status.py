"""Status of the console for the header: mode, source, engines, speed, age, problems."""

from collections.abc import Collection, Sequence
from enum import StrEnum

from msgspec import Struct

from gpuconsole.backends.base import ClusterHealth as ClusterHealth
from gpuconsole.backends.base import Missing as Missing
from gpuconsole.insight.forecast.agreement import NO_COMPARISON, AgreementCounts
from gpuconsole.insight.health.engines import EnginesInForce, KueueProblem
from gpuconsole.model.clock import Span, Time

SHOWN = 3
"""Maximum missing permissions named in a line."""


class ConsoleMode(StrEnum):
    """What the console shows: a simulation, a recording or a live cluster."""

    SIM = "SIM"
    REPLAY = "REPLAY"
    """A recording; only tests have one."""
    LIVE = "LIVE"


class ConsoleStatus(Struct, frozen=True, kw_only=True):
    """Status of the console at one moment. Texts are for users; empty texts are omitted."""

    mode: ConsoleMode = ConsoleMode.SIM
    source: str = ""
    """Where the cluster comes from: a fixture's name, files."""
    engines: EnginesInForce = EnginesInForce()
    """Engines for admission, placement, node provisioning and GPU sharing."""
    policy: str = ""
    """Summary of the engines' settings: `fair sharing off · binpack · gangs`."""
    speed: float | None = None
    """Requested virtual seconds per second; None on a live cluster."""
    reached: float | None = None
    """Recent actual speed; lower than `speed` if there is too much to compute."""
    paused: bool = False
    nodes_synthesised: bool = False
    read_only: bool = False
    time: Time = 0
    """Time of the data, by the cluster's clock."""
    behind: Span | None = None
    """How much earlier than the newest data the shown time is; None while the newest data are shown."""
    age: float = 0.0
    """Wall-clock seconds since the data were last renewed."""
    loading: bool = False
    """True until all data has been loaded."""
    stalled: str = ""
    """The error that stalls the loop; empty without one."""
    worker: str = ""
    """`on`, `off`, or why the worker process is no longer used."""
    history: str = ""
    """Why the history is not written; empty if it is."""
    history_writer: str = ""
    """The other process that writes the history, such as `PID 4711`; empty if none does."""
    reads_history: bool = False
    """Whether the history that the other process writes is read."""
    lost_events: int = 0
    """Number of events missing in the history, because writing was too slow."""
    failed_writes: int = 0
    """Number of writes of the history that failed; what they did not write is tried again."""
    refusal: str = ""
    """Why nothing may be changed; empty where things may."""
    kueue: tuple[KueueProblem, ...] = ()
    """Problems of Kueue; only on a live cluster."""
    agreement: AgreementCounts = NO_COMPARISON
    """Kueue's decisions of the last 24 hours that the engine was compared with; only on a live cluster."""
    alerts: int = 0
    """Number of firing alerts that are not silenced."""
    sight: ClusterHealth | None = None
    """Connection to a live cluster and completeness of its data; None for simulations and recordings."""

    def unseen(self, resources: Collection[str]) -> str:
        """Names the objects of these resources (plurals) that are not visible; of all resources if none are given."""
        missing = self.sight.missing if self.sight is not None else ()
        wanted = [right for right in missing if not resources or right.resource.partition(".")[0] in resources]
        return _named(list(map(str, wanted)))

    @property
    def undecided(self) -> str:
        """Names the objects that are not visible although answers depend on them; empty if there are none."""
        return _named(self.sight.seen.decisive_gaps if self.sight is not None else ())


def _named(rights: Sequence[str]) -> str:
    more = f" … and {len(rights) - SHOWN} more" if len(rights) > SHOWN else ""
    return "; ".join(rights[:SHOWN]) + more
