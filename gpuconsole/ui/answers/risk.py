"""What may evict running work, in words."""

from gpuconsole.insight.risk import Danger, Risk
from gpuconsole.insight.tables import counted, table
from gpuconsole.model.clock import SECOND, format_span, format_time
from gpuconsole.ui.names import called

COLUMNS = (
    "WORKLOAD",
    "QUEUE",
    "GPUS",
    "BORROWED",
    "PRIORITY",
    "RISK",
    "MEDIAN",
    "BY",
    "GOES FOR",
    "LOSES GPU-H",
    "COST $",
)


def risk_lines(answer: Risk) -> list[str]:
    """The answer for people."""
    if not answer.dangers:
        return ["nothing runs"]
    ahead = format_span(answer.horizon - answer.time)
    endangered = sum(one.probability > 0 for one in answer.dangers)
    return [
        f"{endangered} of {counted(len(answer.dangers), 'running workload')} may be evicted within {ahead}",
        "",
        *table(COLUMNS, [_row(one, answer.runs) for one in answer.dangers]),
        "",
        f"{counted(answer.runs, 'run')} of the cluster from {format_time(answer.time // SECOND * SECOND)} on; assumed:",
        *(f"  {text}" for text in answer.assumptions),
    ]


def _row(one: Danger, runs: int) -> tuple[object, ...]:
    median = format_span(one.median // SECOND * SECOND) if one.median is not None else "–"
    causes = "; ".join(f"{c.by_queue or c.reason} {c.runs / runs:.0%}" for c in one.causes[:2])
    turns = ", ".join(f"{turn.lender} as no. {turn.place}" for turn in one.turns[:2])
    return (
        called(one.workload),
        one.queue,
        _held(one),
        "unknown" if one.borrowed is None else one.borrowed or "–",
        one.priority,
        f"{one.probability:.0%}",
        median,
        causes or "–",
        turns or "–",
        "unknown" if one.lost_gpu_hours is None else f"{one.lost_gpu_hours:.1f}",
        "unknown" if one.cost is None else f"{one.cost:.2f}",
    )


def _held(one: Danger) -> str:
    """`8`, `3 MIG`, `8, 3 MIG`"""
    parts = [str(one.gpus)] if one.gpus or not one.instances else []
    return ", ".join([*parts, *([f"{one.instances} MIG"] if one.instances else [])])
