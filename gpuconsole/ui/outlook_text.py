"""Lines about a workload's estimated start or preemption risk."""

from gpuconsole.insight.forecast.estimates import Estimate
from gpuconsole.insight.forecast.expected_start import Eta
from gpuconsole.insight.forecast.workload_outlook import WorkloadOutlook
from gpuconsole.insight.preemption.risk import WorkloadRisk
from gpuconsole.model.clock import DAY, Time, format_span
from gpuconsole.model.workloads import PLACED, WorkloadPhase
from gpuconsole.ui import format as fmt
from gpuconsole.ui.paint import Painted
from gpuconsole.ui.widgets.textpane import BLANK, heading, text_line


def still_open(found: WorkloadOutlook | None, phase: WorkloadPhase) -> WorkloadOutlook | None:
    """The estimate, if it still applies: a start for pending workloads, a risk for running ones."""
    if found is None or phase in (WorkloadPhase.FINISHED, WorkloadPhase.FAILED):
        return None
    return found if (found.risk is not None) is (phase in PLACED) else None


def ahead_lines(found: WorkloadOutlook, now: Time) -> list[Painted]:
    """Lines about its estimated start, or about its risk; none without an estimate."""
    if found.eta is not None and found.eta.start is not None:
        lines = [BLANK, heading("ESTIMATED START"), *_start(found.eta, found.eta.start, now)]
    elif found.risk is not None:
        lines = [BLANK, heading("PREEMPTION RISK"), *_risk(found.risk, found)]
    else:
        return []
    far = f"{format_span(found.until - found.time)} ahead, started {fmt.since(now, found.time)} ago"
    basis = f"{found.runs} simulation runs, {far}, based on past run times and arrivals"
    return [*lines, text_line((f"  {basis}: an estimate, not a guarantee", "dim"))]


def start_range(found: Estimate, now: Time) -> str:
    """`14:05–15:30 (80% interval)`; where it starts in no run, the horizon of the runs."""
    if found.beyond:
        return f"not before {_moment(found.horizon, found.asked)}"
    return f"{moments(found, now) or f'later than {_moment(found.interval.last, found.asked)}'} (80% interval)"


def moments(found: Estimate, now: Time) -> str:
    """The interval alone, from now on; `>14:00 +1d` where it starts in no run by then."""
    until = found.horizon if found.beyond else found.interval.last
    if until < now:
        return ""
    if found.beyond:
        return f">{_moment(until, found.asked)}"
    return "–".join(_moment(time, found.asked) for time in (max(found.interval.first, now), until))


def _start(found: Eta, start: Estimate, now: Time) -> list[Painted]:
    trust = f"in any of {start.runs} runs" if start.beyond else f" {_calibration(start)}"
    lines = [text_line("  ", (start_range(start, now), "strong"), (f" {trust}", "dim"))]
    if found.within:
        lines.append(
            text_line("  ", " · ".join(f"within {format_span(o.span)}: {o.probability:.0%}" for o in found.within))
        )
    if found.cohort is not None:
        place = f"rank {found.cohort.place} of {found.cohort.of} in cohort {found.cohort.cohort}"
        lines.append(text_line(f"  {place}, by priority and age only"))
    basis = f"{found.samples} run times of {found.goes_by}, {found.arrivals} arrivals"
    lines.append(text_line((f"  based on {basis} in {format_span(found.arrivals_span)}", "dim")))
    return lines


def _calibration(start: Estimate) -> str:
    return f"calibrated with {start.calibrated_by} earlier estimates" if start.calibrated_by else "uncalibrated"


def _risk(workload_risk: WorkloadRisk, found: WorkloadOutlook) -> list[Painted]:
    chance = workload_risk.probability or 0.0
    role = "fault" if chance >= 0.5 else "victim" if chance else "good"
    words = f"{chance:.0%} probability of eviction within {format_span(found.until - found.time)}"
    lines = [text_line("  ", (words, role))]
    for cause in workload_risk.causes:
        by = f" by {cause.by_queue}" if cause.by_queue else ""
        lines.append(text_line(f"    {cause.reason}{by}: {cause.runs} of {found.runs} runs"))
    lines += [
        text_line(f"    preemption rank {one.place} if {one.lender} reclaims its {one.flavor}")
        for one in workload_risk.turns
    ]
    lost = "unknown"
    if workload_risk.lost_gpu_hours is not None and workload_risk.cost is not None:
        lost = f"{workload_risk.lost_gpu_hours:.1f} GPU-hours, {fmt.money(workload_risk.cost)}"
    lines.append(text_line((f"  lost work if evicted now: {lost}", "dim")))
    return lines


def _moment(time: Time, now: Time) -> str:
    """`14:05`, with the days until then."""
    days = time // DAY - now // DAY
    return fmt.clock(time)[:5] + (f" +{days}d" if days else "")
