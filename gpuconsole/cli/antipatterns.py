"""`gpuconsole antipatterns`: wasted GPUs and scheduling anti-patterns, with evidence, daily cost and fix."""

import click
import msgspec

from gpuconsole.cli.answering import CommandAnswer, QuestionContext, answering, lines_of
from gpuconsole.insight.health.antipatterns import antipatterns, engines_of, total_per_day, unchecked_kinds
from gpuconsole.insight.health.telemetry import utilization
from gpuconsole.model.clock import format_time
from gpuconsole.model.events import Applied
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.state import ClusterState
from gpuconsole.sim.telemetry import simulate_metrics
from gpuconsole.ui.answers.cluster_reports import antipatterns_lines

VERSION = 3
"""Since 2 `utilization` has the averages of the cluster and its teams; since 3 `unit` says what `gpus` counts."""


@click.command()
@answering
def command(asked: QuestionContext) -> CommandAnswer:
    """Find wasted GPUs and scheduling anti-patterns: evidence, cost per day, fix.

    FILES are manifests, folders, a scenario, or the name of a bundled fixture; --until simulates it first. With GPU
    metrics (--live with --prometheus or --dcgm, or in a simulation) it also finds idle and oversized requests.
    `gpuconsole lint` finds problems that need only manifests.
    """
    policy, history = asked.simulation.policy, lines_of(asked)
    snapshot = _measured(asked)
    found = antipatterns(snapshot, policy.prices, history, engines_of(policy))
    body = {
        "patterns": msgspec.to_builtins(found),
        "cost_per_day": total_per_day(found),
        "measured": len(snapshot.telemetry) > 0,
        "utilization": utilization(snapshot),
    }
    for one in body["patterns"]:
        one["since"] = format_time(one["since"]) if one["since"] is not None else None
    lines = antipatterns_lines(found, measured=len(snapshot.telemetry) > 0, average=utilization(snapshot))
    return CommandAnswer(
        kind="Antipatterns", body=body, lines=lines, version=VERSION, unknown=unchecked_kinds(snapshot.seen)
    )


def _measured(asked: QuestionContext) -> Snapshot:
    """The cluster; a simulated one without GPU metrics gets simulated metrics."""
    snapshot = asked.standing().snapshot
    if asked.mode != "simulated" or len(snapshot.telemetry):
        return snapshot
    state = ClusterState(snapshot.time)
    state.seen = snapshot.seen
    for obj in snapshot.objects():
        state.apply(Applied(snapshot.time, obj))
    for telemetry in simulate_metrics(snapshot, asked.simulation.seed):
        state.apply(Applied(snapshot.time, telemetry))
    return state.freeze()
