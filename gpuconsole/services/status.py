"""Status of the console for the header: mode, source, engine, speed, age, problems."""

from collections.abc import Collection, Sequence
from enum import StrEnum

from msgspec import Struct

from gpuconsole.backends.base import ClusterHealth as ClusterHealth
from gpuconsole.backends.base import Missing as Missing
from gpuconsole.insight.engines import EnginesInForce
from gpuconsole.insight.kueue_liveness import KueueProblem
from gpuconsole.model.clock import Time

SHOWN = 3
"""Most missing permissions named in a line."""


class ConsoleMode(StrEnum):
    SIM = "SIM"
    REPLAY = "REPLAY"
    LIVE = "LIVE"


class ConsoleStatus(Struct, frozen=True, kw_only=True):
    """Status of the console at one moment. Texts are for users; empty texts are omitted."""

    mode: ConsoleMode = ConsoleMode.SIM
    source: str = ""
    """Where the cluster comes from: a fixture's name, files."""
    engines: EnginesInForce = EnginesInForce()
    """Engines for admission, placement, node provisioning and GPU sharing."""
    policy: str = ""
    """How: `fair sharing off · binpack · gangs`."""
    speed: float | None = None
    """Virtual seconds a second that were asked for; None where the time is not ours."""
    reached: float | None = None
    """The speed of late; lower than `speed` where there is too much to compute."""
    paused: bool = False
    nodes_synthesised: bool = False
    read_only: bool = False
    time: Time = 0
    """Of the data."""
    age: float = 0.0
    """Wall-clock seconds since the data were last renewed."""
    loading: bool = False
    """No data came yet."""
    stalled: str = ""
    """Why the loop does not get on."""
    worker: str = ""
    """`on`, `off`, or what became of the worker process."""
    history: str = ""
    """Why the history is not written, where it is not."""
    lost_events: int = 0
    """Events missing in the history, because writing was too slow."""
    refusal: str = ""
    """Why nothing may be changed; empty where things may."""
    kueue: tuple[KueueProblem, ...] = ()
    """Why Kueue does not work; only of a live cluster."""
    sight: ClusterHealth | None = None
    """How well a live cluster can be seen; None where there is nothing but what we made."""

    def unseen(self, resources: Collection[str]) -> str:
        """Objects of these resources (plurals) that are not visible; without arguments of all resources."""
        missing = self.sight.missing if self.sight is not None else ()
        wanted = [right for right in missing if not resources or right.resource.partition(".")[0] in resources]
        return _named(list(map(str, wanted)))

    @property
    def undecided(self) -> str:
        """Objects that are not visible although answers depend on them."""
        return _named(self.sight.seen.decisive_gaps if self.sight is not None else ())


def _named(rights: Sequence[str]) -> str:
    more = f" … and {len(rights) - SHOWN} more" if len(rights) > SHOWN else ""
    return "; ".join(rights[:SHOWN]) + more
