"""`gpuconsole plan`: the cheapest change that lets workloads run within a target wait."""

from pathlib import Path
from typing import Any

import click
import msgspec

from gpuconsole.cli.answering import CommandAnswer, QuestionContext, answering, nothing_said
from gpuconsole.cli.simulate import Duration
from gpuconsole.cli.whatif import changes_in
from gpuconsole.errors import UsageError
from gpuconsole.insight.data_gaps import PLACES, latency_assumption, missing_for_forecast, queue_assumptions, run_times
from gpuconsole.insight.whatif.plan import CapacityPlan, PlanOption, plan
from gpuconsole.model.clock import HOUR, SECOND, Span
from gpuconsole.sim.scenario_form import to_change_list
from gpuconsole.ui.answers.cluster_reports import plan_lines

VERSION = 2
"""Version of the answer in the JSON document."""
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command()
@click.option(
    "-f",
    "--file",
    "wanted",
    type=_FILE,
    required=True,
    help="The workloads: manifests, or changes that create them.",
)
@click.option("--wait", type=Duration(), default="10m", show_default=True, help="Target wait (p95).")
@click.option("--horizon", type=Duration(), default="1h", show_default=True, help="Simulated time per option.")
@answering
def command(asked: QuestionContext, wanted: Path, wait: Span, horizon: Span = HOUR) -> CommandAnswer:
    """Find the cheapest change of quota, nodes or policy that lets workloads run within a target wait.

    FILES are manifests, folders, a scenario, or the name of a bundled fixture; - is stdin. Each option is simulated in
    a fork of the cluster, which is never changed. Exits with 1 if no option meets the target, not even temporarily.
    """
    changes = changes_in(wanted, asked.simulation.now, asked.simulation.snapshot())
    if lacking := missing_for_forecast(asked.simulation.snapshot(), *PLACES):
        return nothing_said("Plan", lacking, VERSION)
    policy = asked.simulation.policy
    assumed = run_times(policy) if asked.found is not None else ()
    answer = plan(asked.simulation, changes.commands, wait, horizon)
    if not answer.workloads and not answer.obstacles:
        raise UsageError(f"{wanted}: it creates no workload; add jobs, or changes that create some")
    return CommandAnswer(
        kind="Plan",
        body=as_body(answer),
        lines=plan_lines(answer),
        version=VERSION,
        status=int(answer.best is None),
        assumed=(*assumed, *queue_assumptions(asked.simulation), latency_assumption(policy.latencies)),
    )


def as_body(answer: CapacityPlan) -> dict[str, Any]:
    """Return the plan as JSON values; the commands of an option have the form of `gpuconsole whatif -f` steps."""
    return {
        "workloads": answer.workloads,
        "wanted_seconds": answer.wanted / SECOND,
        "horizon_seconds": answer.horizon / SECOND,
        "best": None if answer.best is None else answer.best.kind,
        "without": _option(answer.without, answer),
        "options": [_option(option, answer) for option in answer.options],
        "failed": [_option(option, answer) for option in answer.failed],
        "obstacles": answer.obstacles,
    }


def _option(option: PlanOption, answer: CapacityPlan) -> dict[str, Any]:
    plain = msgspec.structs.asdict(option)
    p95 = plain.pop("p95_wait")
    before = p95 is not None and p95 <= answer.horizon
    steps = to_change_list(option.commands, answer.horizon, lambda obj: {})["steps"]
    return {**plain, "commands": steps, "p95_wait_seconds": p95 / SECOND if before else None}
