"""Text of the shadow's report: how often the engine decided as Kueue did, on which state, and each disagreement."""

from collections.abc import Mapping

from gpuconsole.insight.forecast.agreement import (
    DisagreementCause,
    ShadowDisagreement,
    ShadowReport,
    StateOrigin,
)
from gpuconsole.insight.tables import counted, seconds
from gpuconsole.model.clock import format_span
from gpuconsole.ui.answers.cluster_reports import About, AnswerTable, Part, Row
from gpuconsole.ui.names import called, named

STATES: Mapping[StateOrigin, str] = {
    StateOrigin.CURRENT: "on the state just before the decision",
    StateOrigin.EARLIER: "on a state of the last second: Kueue had not read the newest changes yet",
    StateOrigin.REQUEUED: "if the inadmissible workloads had been requeued by then",
    StateOrigin.QUEUES: "if only this workload was active, or its search resumed at another flavor",
}
"""State on which the engine agrees → its explanation."""
CAUSES: Mapping[DisagreementCause, str] = {
    DisagreementCause.OTHER_FLAVORS: "both reserve quota, for other flavors or another number of pods",
    DisagreementCause.NOT_RESERVED: "Kueue reserved quota, the engine refuses",
    DisagreementCause.NOT_REFUSED: "Kueue refused, the engine reserves quota",
    DisagreementCause.OTHER_MESSAGE: "both refuse, with other reasons or amounts",
    DisagreementCause.OTHER_PREEMPTOR: "both preempt, for another preemptor or by another rule",
    DisagreementCause.NOT_PREEMPTED: "Kueue evicted, the engine does not",
    DisagreementCause.NOT_TRIED: "the engine's cycles do not come to the workload",
}
"""Cause of a disagreement → its explanation."""


def shadow_parts(report: ShadowReport) -> list[Part]:
    """Return the report as lines and tables, the disagreements last."""
    counts = report.counts
    unknown = [_unknown(report)] if report.known_since is None else []
    if not counts.decisions:
        return ["no Kueue decisions to compare", *unknown]
    first = (
        f"{counted(counts.decisions, 'Kueue decision')} in {format_span(report.until - report.since)}:"
        f" the engine agrees with {counts.agreed:,} of {counts.known:,} known ones ({counts}),"
        f" {counts.unknown:,} unknown"
    )
    kinds = tuple(
        Row(key=kind.value, cells=(kind.value, one.decisions, one.agreed, one.unknown))
        for kind, one in sorted(report.kinds.items())
    )
    results = (
        *((report.states.get(state, 0), f"agreed, {state.value}", means) for state, means in STATES.items()),
        *((number, cause.value, CAUSES[cause]) for cause, number in sorted(report.causes.items())),
    )
    parts: list[Part] = [
        first,
        *unknown,
        "",
        AnswerTable(("DECISION", "DECISIONS", "AGREED", "UNKNOWN"), kinds),
        "",
        AnswerTable(("COUNT", "RESULT", "MEANS"), tuple(Row(key=cells[1], cells=cells) for cells in results)),
    ]
    if report.disagreements:
        rows = tuple(map(_row, enumerate(reversed(report.disagreements))))
        parts += ["", AnswerTable(("TIME", "WORKLOAD", "QUEUE", "CAUSE", "ENGINE AND KUEUE"), rows)]
    return parts


def _unknown(report: ShadowReport) -> str:
    trees = counted(report.without_history, "cohort tree")
    return f"unknown until the inadmissible workloads of {trees} have been requeued"


def _row(numbered: tuple[int, ShadowDisagreement]) -> Row:
    number, one = numbered
    return Row(
        key=f"{number} {one.workload}",
        cells=(seconds(one.time), called(one.workload), one.queue, one.cause.value, f"engine: {named(one.expected)}"),
        about=About("workloads", one.workload),
        note=f"Kueue: {named(one.actual)}",
    )
