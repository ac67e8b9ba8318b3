"""Questions without a screen: the cluster is opened alike for each of them, and each answer is printed alike.

A document is `{"kind", "version", "source", "mode", "time", "age_seconds", "assumed", "unknown", "answer"}`: what was
asked, of which cluster, as of when, and how old that is. `version` grows when a field of the answer changes its meaning
or goes. `answer` is null where nothing can be said, as what it rests on may not be read; `unknown` names that.
"""

import time
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import click
import msgspec
from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.cli.options import Request, clustered, configured
from gpuconsole.cli.simulate import Duration
from gpuconsole.cli.sources import open_simulation
from gpuconsole.config import Config
from gpuconsole.garbage import uncollected
from gpuconsole.insight.standing import Standing, standing_of, standing_on
from gpuconsole.insight.tables import seconds
from gpuconsole.model.clock import SECOND, Span, Time, format_span, format_time
from gpuconsole.model.events import Happened
from gpuconsole.model.seen import Seen, cut
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.text import clean
from gpuconsole.sim.engine import Simulation
from gpuconsole.sim.scenario import Scenario
from gpuconsole.ui.answers.unseen import NOTHING, left_open


class Origin(Struct, frozen=True, kw_only=True):
    """Where an answer comes from."""

    source: str
    mode: str
    """`simulated`, `saved`, `live` or `recorded`."""
    now: Time | None
    """As of when it is; None for a record of several sessions."""
    assumed: tuple[str, ...] = ()
    """What is not known of the cluster and was taken for granted."""
    staged: bool = False
    """It is of a simulation, whose clock is its own."""


class Asked(Struct, frozen=True, kw_only=True):
    """The cluster that a question is about. `simulation` may be run and forked at will: nobody else holds it."""

    simulation: Simulation
    source: str
    mode: str
    """`simulated`, `saved` or `live`."""
    settings: Config
    found: Snapshot | None = None
    """The cluster as others left it, with nothing of what the simulation decided since; None for a simulated one."""
    assumed: tuple[str, ...] = ()
    """What is not known of the cluster and was taken for granted."""
    staged: bool = False
    """It was saved from a simulation."""
    scenario: Scenario | None = None
    """What a simulated cluster was built from."""
    gpus_per_node: int | None = None
    """Of the nodes that are made from flavors, where that was asked for."""
    began: float = 0.0
    """When it began to be opened, on the monotonic clock, in seconds."""

    def standing(self) -> Standing:
        """The cluster as it is: where others run it, with nothing of what the simulation made of it."""
        if self.found is None:
            return standing_of(self.simulation)
        return standing_on(self.found, self.simulation.policy)

    @property
    def seen(self) -> Seen:
        """What of the cluster is known at all."""
        snapshot = self.simulation.snapshot()
        return cut(snapshot.seen, snapshot.recent) if self.mode == "live" else snapshot.seen

    @property
    def origin(self) -> Origin:
        now, staged = self.simulation.now, self.staged
        return Origin(source=self.source, mode=self.mode, now=now, assumed=self.assumed, staged=staged)


class Answer(Struct, frozen=True, kw_only=True):
    """What is printed: `lines` for people, or `body` in a document of this `kind`."""

    kind: str
    body: Any
    lines: Sequence[str]
    version: int = 1
    status: int = 0
    """Exit status."""
    assumed: tuple[str, ...] = ()
    """What it takes for granted, besides what its cluster does not tell."""
    unknown: tuple[str, ...] = ()
    """What the answer leaves open, as it may not be read, in sentences."""


UNKNOWN = 2
"""Exit status where nothing can be said: that is no answer, as little as a cluster that cannot be reached."""


def nothing_said(kind: str, unknown: tuple[str, ...], version: int = 1) -> Answer:
    """The answer where it rests on what may not be read."""
    return Answer(kind=kind, body=None, lines=(NOTHING,), version=version, status=UNKNOWN, unknown=unknown)


printing = click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
"""How an answer is printed."""


def answering(function: Callable[..., Answer]) -> Callable[..., int]:
    """Make a command of a function from `asked` (and its own options) to an Answer.

    The command takes the options of every source, `--until` to run the simulation on first, and `-o`.
    """

    @clustered
    @click.option("--until", type=Duration(), default="0s", show_default=True, help="Run it so long first.")
    @printing
    @wraps(function)
    def command(request: Request, until: Span, output: str, **options: Any) -> int:
        asked = open_cluster(request, until)
        with uncollected():
            answer = function(asked=asked, **options)
        for text in answer.assumed:
            click.echo(clean(f"gpuconsole: {text}"), err=True)
        return say(asked.origin, answer, output)

    return command


def say(origin: Origin, answer: Answer, output: str) -> int:
    """Print an answer; returns its exit status. Beside lines for people stderr says of what they are, and how old."""
    if output == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(document(origin, answer)), indent=2).decode())
    else:
        for line in (*answer.lines, *left_open(answer.unknown)):
            click.echo(clean(line))
        click.echo(clean(f"gpuconsole: {_provenance(origin)}"), err=True)
    return answer.status


def _provenance(origin: Origin) -> str:
    """`saved s.json as of 2026-01-05T14:00:00Z, 3h12m ago`."""
    what = f"{origin.mode} {origin.source}"
    if origin.now is None:
        return what
    age = _age(origin)
    return f"{what} as of {seconds(origin.now)}" + (
        f", {format_span(age // SECOND * SECOND)} ago" if age is not None else ""
    )


def _age(origin: Origin) -> Span | None:
    """How old an answer is; None for a simulation, what is kept of one, and a record of several sessions."""
    if origin.now is None or origin.mode == "simulated" or origin.staged:
        return None
    return max(0, time.time_ns() // 1000 - origin.now)


def open_cluster(request: Request, until: Span = 0) -> Asked:
    """Open what was asked for and run it for `until`; what is to be said about it goes to stderr."""
    began = time.monotonic()
    request, settings = configured(replace(request, tells_choices=True))
    opened = open_simulation(request, settings)
    opened.simulation.advance(opened.simulation.now + until)
    for notice in opened.notices:
        click.echo(clean(f"gpuconsole: {notice}"), err=True)
    return Asked(
        simulation=opened.simulation,
        source=opened.about.source,
        # What comes of running it on is a simulation's, whatever it went on from.
        mode="simulated" if until else mode_of(request),
        settings=settings,
        found=opened.found if not until else None,
        assumed=opened.notices if opened.found is not None else (),
        staged=opened.staged,
        scenario=opened.scenario,
        gpus_per_node=request.gpus_per_node,
        began=began,
    )


def mode_of(request: Request) -> str:
    """What kind of cluster is asked: `live`, `saved` or `simulated`."""
    return "live" if request.live else "saved" if request.snapshot is not None else "simulated"


def lines_of(asked: Asked) -> list[Happened]:
    """What happened to the cluster as far as it is known, oldest first; the simulation forgets what it told."""
    if asked.found is not None:
        return list(asked.found.recent)
    return history_of(asked.simulation)


def history_of(simulation: Simulation) -> list[Happened]:
    """What a simulation told, and what it knew before; it forgets what it told."""
    told = [event for event in simulation.drain() if isinstance(event, Happened)]
    before = told[0].time if told else simulation.now + 1
    return [line for line in simulation.snapshot().recent if line.time < before] + told


def document(origin: Origin, answer: Answer) -> dict[str, Any]:
    """The answer with where it comes from."""
    now, age = origin.now, _age(origin)
    return {
        "kind": answer.kind,
        "version": answer.version,
        "source": origin.source,
        "mode": origin.mode,
        "time": format_time(now) if now is not None else None,
        "age_seconds": round(age / SECOND, 3) if age is not None else None,
        "assumed": (*origin.assumed, *answer.assumed),
        "unknown": answer.unknown,
        "answer": msgspec.to_builtins(answer.body, str_keys=True),
    }
