"""Preemption risk of a big cluster: until the first answer, and all that it takes."""

from gpuconsole.insight.preemption.risk import eviction_risk_steps
from gpuconsole.model.clock import MINUTE
from tests.tools.bench.forks import simulation
from tests.tools.bench.report import Report, cpu

WORKLOADS, NODES, QUEUES = 5_000, 500, 20
BAR = 10.0


def risks(report: Report) -> None:
    """The risk of everything that runs there, with the runs that its effort allows."""
    made = simulation(WORKLOADS, NODES, queues=QUEUES)
    title = f"risk, {WORKLOADS:,} workloads, {NODES:,} nodes"
    report.seconds(
        f"{title}: first answer", cpu(lambda: next(p for p in eviction_risk_steps(made) if p.answer)), bar=BAR
    )
    last = None

    def whole() -> None:
        nonlocal last
        *_, piece = eviction_risk_steps(made)
        last = piece.answer

    spent = cpu(whole)
    assert last is not None
    ahead = (last.horizon - last.time) // MINUTE
    report.seconds(f"{title}: {last.runs} runs, {ahead} minutes ahead", spent, bar=BAR)
