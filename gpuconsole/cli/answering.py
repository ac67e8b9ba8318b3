"""Shared parts of the commands that answer a question about a cluster (`why`, `eta`, `whatif` and others).

`answering` makes a click command of a function: it opens the cluster, calls the function, and prints its answer as text
or JSON. `subject_named` and `whole_named` find the object with a name that the user typed; every name that an answer
shows is accepted.

The JSON document is `{"kind", "version", "source", "mode", "time", "age_seconds", "assumed", "unknown", "answer"}`.
`version` grows when a field of the answer changes its meaning or is removed. `answer` is null where RBAC forbids
reading what the answer depends on; `unknown` names that.
"""

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from difflib import get_close_matches
from functools import wraps
from typing import Any

import click
import msgspec
from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.cli.options import OpenRequest, clustered, configured, print_json
from gpuconsole.cli.simulate import Duration
from gpuconsole.cli.sources import open_simulation
from gpuconsole.config import Config
from gpuconsole.errors import HistoryError, UsageError
from gpuconsole.garbage import uncollected
from gpuconsole.insight.forecast.agreement import NO_COMPARISON, AgreementCounts, agreement_sentence
from gpuconsole.insight.index.unqueued_work import outermost, unqueued_work
from gpuconsole.insight.pending.why import AdmissionView, view_of, view_on
from gpuconsole.insight.tables import seconds
from gpuconsole.model.clock import SECOND, Span, Time, format_span, format_time
from gpuconsole.model.events import HistoryEvent
from gpuconsole.model.snapshot import Snapshot, Visibility, with_truncated_history
from gpuconsole.model.text import clean
from gpuconsole.sim.engine import Simulation
from gpuconsole.sim.scenario import Scenario
from gpuconsole.store import queries
from gpuconsole.store.schema import earlier_sessions
from gpuconsole.ui.answers.cluster_reports import NOTHING, missing_data_lines
from gpuconsole.ui.names import called


class Origin(Struct, frozen=True, kw_only=True):
    """The source of the data that an answer is computed from."""

    source: str
    mode: str
    """`simulated`, `saved`, `live` or `recorded`."""
    now: Time | None
    """Time of the data; None for a history of several sessions."""
    assumed: tuple[str, ...] = ()
    """Assumptions about facts of the cluster that are unknown."""
    staged: bool = False
    """Whether the data is of a simulation, so that its time is not wall-clock time."""


class QuestionContext(Struct, frozen=True, kw_only=True):
    """The cluster that a question is about, with its settings. The command may advance and fork its `simulation`."""

    simulation: Simulation
    source: str
    mode: str
    """`simulated`, `saved`, `recorded` or `live`."""
    settings: Config
    found: Snapshot | None = None
    """A live, saved or recorded cluster as it was read, before any simulated decision; None for a simulated one."""
    assumed: tuple[str, ...] = ()
    """Assumptions about facts of the cluster that are unknown, as sentences."""
    staged: bool = False
    """Whether the cluster is a snapshot saved from a simulation, so that its time is not wall-clock time."""
    scenario: Scenario | None = None
    """The scenario that a simulated cluster was built from; None for a live or saved one."""
    gpus_per_node: int | None = None
    """GPUs per node where nodes are made from flavors, as given on the command line; None if not given."""
    began: float = 0.0
    """When the opening of the cluster began, in seconds of `time.monotonic`."""

    def standing(self) -> AdmissionView:
        """Return the current cluster for admission questions: as read where it is live or saved, else as simulated."""
        if self.found is None:
            return view_of(self.simulation)
        return view_on(self.found, self.simulation.policy)

    @property
    def agreement(self) -> AgreementCounts | None:
        """Return how often the engine decided as a live Kueue did in the last 24 hours; None for other clusters."""
        if self.mode != "live":
            return None
        return recorded_agreement(self.settings, self.source, self.simulation.now)

    @property
    def seen(self) -> Visibility:
        """Return which parts of the cluster could be read; the history of a live one may lack older events."""
        snapshot = self.simulation.snapshot()
        return with_truncated_history(snapshot.seen, snapshot.recent) if self.mode == "live" else snapshot.seen

    @property
    def origin(self) -> Origin:
        now, staged = self.simulation.now, self.staged
        return Origin(source=self.source, mode=self.mode, now=now, assumed=self.assumed, staged=staged)


class CommandAnswer(Struct, frozen=True, kw_only=True):
    """The answer of a command: `lines` are printed as text, or `body` in a JSON document of this `kind`."""

    kind: str
    body: Any
    lines: Sequence[str]
    version: int = 1
    status: int = 0
    """Exit status of the command."""
    assumed: tuple[str, ...] = ()
    """Assumptions of the answer, besides those about the cluster."""
    unknown: tuple[str, ...] = ()
    """Sentences that name what is unknown because RBAC forbids reading it."""


def recorded_agreement(settings: Config, source: str, now: Time) -> AgreementCounts | None:
    """Return how often the engine decided as the live cluster's Kueue did, as consoles recorded it.

    The decisions are those of the last 24 hours. None if the history cannot be read, as answers do not depend on it.
    """
    path = settings.live_history_file(source)
    if not path.exists():
        return NO_COMPARISON
    try:
        with earlier_sessions(path) as db:
            return queries.agreement_of(db, source, now).counts
    except HistoryError:
        return None


def agreement_body(counts: AgreementCounts | None) -> dict[str, Any]:
    """Return the field of a JSON document about the agreement with Kueue; no field if it is None."""
    if counts is None:
        return {}
    return {"kueue_agreement": {**msgspec.structs.asdict(counts), "text": agreement_sentence(counts)}}


def agreement_lines(counts: AgreementCounts | None) -> list[str]:
    """Return the same as the last lines of a text."""
    return ["", agreement_sentence(counts)] if counts is not None else []


UNKNOWN = 2
"""Exit status of a command that has no answer, as for an unreachable cluster."""


def nothing_said(kind: str, unknown: tuple[str, ...], version: int = 1) -> CommandAnswer:
    """Return the answer of a command for which RBAC forbids reading what it depends on; `unknown` names that."""
    return CommandAnswer(kind=kind, body=None, lines=(NOTHING,), version=version, status=UNKNOWN, unknown=unknown)


printing = click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
"""The `-o` option, which selects text or JSON output."""


def answering(function: Callable[..., CommandAnswer]) -> Callable[..., int]:
    """Make a click command of a function that receives `asked` (a QuestionContext) and its own options.

    The command also has the options that select the cluster, `--until` (simulate first) and `-o`. It prints the answer
    and returns the exit status.
    """

    @clustered
    @click.option("--until", type=Duration(), default="0s", show_default=True, help="Simulate this long first.")
    @printing
    @wraps(function)
    def command(request: OpenRequest, until: Span, output: str, **options: Any) -> int:
        asked = open_cluster(request, until)
        with uncollected():
            answer = function(asked=asked, **options)
        for text in answer.assumed:
            click.echo(clean(f"gpuconsole: {text}"), err=True)
        return say(asked.origin, answer, output)

    return command


def say(origin: Origin, answer: CommandAnswer, output: str) -> int:
    """Print an answer as `output`, text or json; return its exit status. With text, stderr names the data's origin."""
    if output == "json":
        print_json(document(origin, answer))
    else:
        for line in (*answer.lines, *missing_data_lines(answer.unknown)):
            click.echo(clean(line))
        click.echo(clean(f"gpuconsole: {provenance(origin)}"), err=True)
    return answer.status


def provenance(origin: Origin) -> str:
    """Name the source of the data and their time: `saved s.json as of 2026-01-05T14:00:00Z, 3h12m ago`."""
    what = f"{origin.mode} {origin.source}"
    if origin.now is None:
        return what
    age = _age(origin)
    return f"{what} as of {seconds(origin.now)}" + (
        f", {format_span(age // SECOND * SECOND)} ago" if age is not None else ""
    )


def _age(origin: Origin) -> Span | None:
    """Age of the data; None for a simulation, its snapshot, and a history of several sessions."""
    if origin.now is None or origin.mode == "simulated" or origin.staged:
        return None
    return max(0, time.time_ns() // 1000 - origin.now)


def open_cluster(request: OpenRequest, until: Span = 0) -> QuestionContext:
    """Open the requested cluster, and simulate it for `until`; notices go to stderr. Raises as `open_simulation`."""
    began = time.monotonic()
    request, settings = configured(replace(request, traces_preemptions=True))
    opened = open_simulation(request, settings)
    opened.simulation.advance(opened.simulation.now + until)
    for notice in opened.notices:
        click.echo(clean(f"gpuconsole: {notice}"), err=True)
    return QuestionContext(
        simulation=opened.simulation,
        source=opened.about.source,
        # After --until the state is simulated, also if the cluster was live or saved.
        mode="simulated" if until else mode_of(request),
        settings=settings,
        found=opened.found if not until else None,
        assumed=opened.notices if opened.found is not None else (),
        staged=opened.staged,
        scenario=opened.scenario,
        gpus_per_node=request.gpus_per_node,
        began=began,
    )


def mode_of(request: OpenRequest) -> str:
    """Return the kind of the requested cluster: `live`, `saved`, `recorded` or `simulated`."""
    if request.recorded is not None:
        return "recorded"
    return "live" if request.live else "saved" if request.snapshot is not None else "simulated"


def lines_of(asked: QuestionContext) -> list[HistoryEvent]:
    """Return the known events of the cluster, oldest first. Call it once, as it drains those of a simulation."""
    if asked.found is not None:
        return list(asked.found.recent)
    return history_of(asked.simulation)


def history_of(simulation: Simulation) -> list[HistoryEvent]:
    """Return all known events of a simulation, oldest first: its snapshot's and the new ones, which it drains."""
    events = [event for event in simulation.drain() if isinstance(event, HistoryEvent)]
    before = events[0].time if events else simulation.now + 1
    return [line for line in simulation.snapshot().recent if line.time < before] + events


def document(origin: Origin, answer: CommandAnswer) -> dict[str, Any]:
    """Return the answer as a JSON document, with the origin of its data."""
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


CLOSE = 3
"""Maximum number of similar names that are suggested for an unknown one."""
_EMPTY = "with an empty name"


def subject_named(snapshot: Snapshot, name: str, known: Collection[str] = ()) -> str:
    """Return the key of the object with a typed name: one of `known`, else a Workload, else a job or pod.

    `known` are keys in an answer, also of objects that are deleted by now. Raises UsageError if no object or several
    objects have the name.
    """
    found = [name] if name in known else [key for key in known if name in _names(key)]
    found = found or _workloads(snapshot, name) or _unqueued(snapshot, name)
    return _only(snapshot, name, found, "workload, job or pod")


def whole_named(snapshot: Snapshot, name: str) -> str:
    """Return the key of the Workload with a typed name, or of a job or pod that has no Workload object.

    The name of a pod stands for its Workload or job, that of a job for the job that owns it. Raises UsageError, also
    for a job without pods of its own, such as a CronJob.
    """
    key = subject_named(snapshot, name)
    pod = snapshot.pods.get(key) if key not in snapshot.workloads else None
    if pod is not None and pod.workload:
        return pod.workload
    whole = outermost(snapshot.jobs.get, pod.job if pod is not None and pod.job else key)
    if whole in snapshot.workloads or whole in unqueued_work(snapshot):
        return whole
    raise UsageError(f"{whole} has no pods of its own; name a job that it creates")


def _unqueued(snapshot: Snapshot, name: str) -> list[str]:
    """Jobs and pods of this name."""
    return [key for keys in (snapshot.jobs, snapshot.pods) for key in keys if name in (key, _plain(key), _bare(key))]


def _workloads(snapshot: Snapshot, name: str) -> list[str]:
    """The Workload of this key; else those of jobs of this name, in any namespace if none is given."""
    if name in snapshot.workloads:
        return [name]
    return [one.key for one in snapshot.workloads.all() if name in _names(one.key, one.owner)]


def _names(key: str, owner: str = "") -> set[str]:
    """All names that may stand for a key: the key, the shown name and the owner, with or without kind and namespace."""
    keys = {key, called(key), owner or key}
    return {*keys, *map(_plain, keys), *map(_bare, keys)}


def _plain(key: str) -> str:
    """`namespace/name` of `Kind/namespace/name`."""
    return key.partition("/")[2] if key.count("/") > 1 else key


def _bare(key: str) -> str:
    return key.rpartition("/")[2]


def _only(snapshot: Snapshot, name: str, found: list[str], what: str) -> str:
    if len(found) == 1:
        return found[0]
    if found:
        raise UsageError(f"{name} is ambiguous: {', '.join(sorted(found)[:8])}; use one of these names")
    near = _close(name, (called(key) for key in snapshot.workloads))
    raise UsageError(f"there is no {what} {name or _EMPTY}" + (f"; did you mean {', '.join(near)}?" if near else ""))


def _close(name: str, names: Iterable[str]) -> list[str]:
    """Similar names, closest first; a name without a namespace is compared with the last part only."""
    whole = {(_bare(one) if "/" not in name else one): one for one in names}
    return [whole[one] for one in get_close_matches(name[:120], whole, CLOSE, 0.75)]
