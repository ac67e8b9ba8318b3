"""Lines with Kueue's own metrics of a ClusterQueue, each beside the console's count."""

from collections.abc import Sequence

from gpuconsole.insight.index.queues import MetricComparison, QueueMetrics
from gpuconsole.model.clock import HOUR, SECOND, Time, format_span
from gpuconsole.ui.paint import Painted
from gpuconsole.ui.widgets.textpane import BLANK, field, heading, text_line

WIDTH = 24


def metrics_lines(metrics: QueueMetrics, both: Sequence[MetricComparison], now: Time) -> list[Painted]:
    """The lines; none without a source of metrics."""
    if metrics.trouble:
        return [BLANK, heading("Kueue's metrics"), text_line((f"  {metrics.trouble}", "fault"))]
    if not metrics.source:
        return []
    age = f"{metrics.source}, {format_span(max(0, now - metrics.time))} ago"
    lines = [BLANK, heading("Kueue's metrics"), text_line((f"  {age}", "dim"))]
    lines += [_counted(one) for one in both]
    if metrics.inadmissible is not None:
        lines.append(field("Of these inadmissible", f"{metrics.inadmissible:,.0f}", width=WIDTH))
    if metrics.wait_median is not None and metrics.wait_p95 is not None:
        waits = f"p50 {_span(metrics.wait_median)}, p95 {_span(metrics.wait_p95)}, {_when(metrics)}"
        lines.append(field("Admission wait time", waits, width=WIDTH))
    if metrics.evicted:
        said = ", ".join(f"{reason} {count:,.0f}" for reason, count in sorted(metrics.evicted.items()))
        lines.append(field("Evicted", f"{said}, {_when(metrics)}", width=WIDTH))
    return lines


def _counted(one: MetricComparison) -> Painted:
    text = f"{one.theirs:,.0f}" if one.same else f"{one.theirs:,.0f} · console counts {one.ours:,.0f}"
    return field(one.name, text, "" if one.same else "held", width=WIDTH)


def _when(metrics: QueueMetrics) -> str:
    span = metrics.time - metrics.since
    if not metrics.since:
        return "since Kueue's manager started"
    return "in the last hour" if span == HOUR else f"since Kueue's manager started {format_span(span)} ago"


def _span(seconds: float) -> str:
    return format_span(int(seconds * SECOND))
