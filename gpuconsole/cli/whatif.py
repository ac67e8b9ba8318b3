"""The command `gpuconsole whatif`: changes simulated in a fork, compared with the baseline."""

import time
from functools import partial
from pathlib import Path
from typing import Any

import click
import msgspec
from msgspec import Struct

from gpuconsole.cli.answering import CommandAnswer, QuestionContext, answering, nothing_said
from gpuconsole.cli.engine_comparison import ENGINES, compared
from gpuconsole.cli.findings import as_line
from gpuconsole.cli.scenarios import placed
from gpuconsole.cli.simulate import Duration
from gpuconsole.cli.sources import FindingsError
from gpuconsole.cli.whatif_report import as_text
from gpuconsole.errors import UsageError
from gpuconsole.insight.data_gaps import PLACES, latency_assumption, missing_for_forecast, queue_assumptions, run_times
from gpuconsole.insight.whatif.answer import verdict
from gpuconsole.insight.whatif.whatif import WhatIf, what_if, what_if_steps
from gpuconsole.model.clock import HOUR, SECOND, Span, Time, format_time
from gpuconsole.model.documents.metadata import GeneratedNames
from gpuconsole.model.manifests import Severity, load
from gpuconsole.model.manifests.kinds import is_name_taken
from gpuconsole.model.snapshot import EMPTY, Snapshot
from gpuconsole.sim.policy import Substitute
from gpuconsole.sim.scenario_form import ScenarioError
from gpuconsole.sim.scenario_steps import Changes, read_changes
from gpuconsole.ui.names import named
from gpuconsole.workers.forked_future import fork_future

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_TIMES = {
    "time",
    "compared",
    "horizon",
    "admitted",
    "admitted_without",
    "started",
    "returns",
    "without",
    "changed",
    "first",
    "last",
    "earliest",
    "latest",
    "released",
    "pods_gone",
}
_SPANS = {"median_wait", "median_wait_without", "p95_wait", "p95_wait_without"}
_INSIDE = {"evictions", "evictions_without", "subjects", "only_work", "latency"}
"""Fields that are not in the answer: sources of the eviction lists, and what the document has as `assumed`."""
_EVICTED = ("victims", "own_evictions", "knock_on", "spared")
VERSION = 6
OF_NODES = (
    *("gpus_total", "gpus_total_without", "gpus_total_with", "gpus_now", "gpus_without", "gpus"),
    *("gpu_hours_without", "gpu_hours", "capacity_hours_without", "capacity_hours"),
    *("placeless_without", "placeless", "hourly_without", "hourly"),
)
"""Fields that are null unless all nodes and pods are visible."""


@click.command()
@click.option("-f", "--file", "change", type=_FILE, help="The changes: a list of steps, as in a scenario.")
@click.option("--against", type=_FILE, help="Changes of the baseline (default: none).")
@click.option(
    "--engine",
    "substitutes",
    multiple=True,
    type=click.Choice(ENGINES),
    help="Compare the same jobs under this engine; all but kueue replace Kueue. Several are allowed.",
)
@click.option("--conf", type=_FILE, help="volcano-scheduler.conf for --engine volcano (default: the Helm chart's).")
@click.option("--horizon", type=Duration(), help="How far to look ahead. Default: 1h, or 24h with --engine.")
@answering
def command(
    asked: QuestionContext,
    change: Path | None,
    against: Path | None,
    substitutes: tuple[str, ...],
    conf: Path | None,
    horizon: Span | None,
) -> CommandAnswer:
    """Simulate changes in a fork of a cluster, and compare the outcome with the baseline.

    With --engine: run the same jobs from the start under the cluster's own engines and under others, and compare.

    FILES are manifests, folders, a scenario, or the name of a bundled fixture; - is stdin. The cluster is never changed
    and nothing is reserved. Exits with 1 if a change cannot be applied.
    """
    if substitutes and (change is not None or against is not None):
        raise UsageError("give changes (--file) or engines (--engine), not both")
    if conf is not None and Substitute.VOLCANO not in substitutes:
        raise UsageError("--conf configures Volcano: add --engine volcano")
    if substitutes:
        return compared(asked, substitutes, horizon, conf)
    if change is None:
        raise UsageError("give changes (--file) or engines (--engine) to compare with")
    now = asked.simulation.now
    snapshot = asked.simulation.snapshot()
    wanted = changes_in(change, now, snapshot)
    other = changes_in(against, now, snapshot).commands if against is not None else ()
    if lacking := missing_for_forecast(snapshot):
        return nothing_said("WhatIf", lacking, VERSION)
    blind = snapshot.seen.missing_reasons(*PLACES)
    span = horizon if horizon is not None else wanted.horizon if wanted.horizon is not None else HOUR
    tried = asked.simulation, wanted.commands, span, other, wanted.places, asked.found
    answer = what_if(what_if_steps(*tried, elsewhere=fork_future, clock=time.thread_time))
    other_changes = against.name if against is not None else ""
    policy = asked.simulation.policy
    assumed = run_times(policy) if asked.found is not None else ()
    return CommandAnswer(
        kind="WhatIf",
        body=as_body(answer) | (dict.fromkeys(OF_NODES) if blind else {}),
        lines=as_text(answer, other_changes, of_nodes=not blind),
        version=VERSION,
        status=int(bool(answer.refused)),
        assumed=(*assumed, *queue_assumptions(asked.simulation), latency_assumption(policy.latencies)),
        unknown=tuple(f"GPUs, nodes and node cost: {text}" for text in blind),
    )


def changes_in(file: Path, now: Time, snapshot: Snapshot = EMPTY) -> Changes:
    """Read a list of changes and the manifests in the same file. Raises FindingsError with every problem.

    Objects with a generateName get names that no object of `beside` has.
    """
    names = GeneratedNames(str(now), partial(is_name_taken, snapshot))
    loaded = load([str(file)], now=now, names=names)
    errors = [as_line(finding) for finding in loaded.findings if finding.severity is Severity.ERROR]
    if errors:
        raise FindingsError("\n".join(errors))
    try:
        return read_changes(loaded.scenario, str(file), now, objects=loaded.objects, names=names)
    except ScenarioError as error:
        raise FindingsError(placed(error, str(file), loaded.lines)) from error


def as_body(answer: WhatIf) -> dict[str, Any]:
    """The outcome as plain values: verdict first, times as RFC 3339, durations in seconds, evictions per workload."""
    plain = {name: value for name, value in _plain(answer).items() if name not in _INSIDE}
    evicted = {name: [_plain(one) for one in getattr(answer, name)] for name in _EVICTED}
    return {"verdict": named(verdict(answer)), **plain, **evicted, "empty": answer.empty}


def _plain(obj: Struct) -> dict[str, Any]:
    return dict(_field(name, getattr(obj, name)) for name in obj.__struct_fields__)


def _field(name: str, value: Any) -> tuple[str, Any]:
    if name in _SPANS:
        return f"{name}_seconds", None if value is None else value / SECOND
    if name in _TIMES:
        return name, None if value is None else format_time(value)
    if isinstance(value, Struct):
        return name, _plain(value)
    if isinstance(value, tuple) and value and isinstance(value[0], Struct):
        return name, [_plain(one) for one in value]
    return name, msgspec.to_builtins(value)
