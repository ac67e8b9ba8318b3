"""What probably comes for a workload, as lines of its page."""

from gpuconsole.insight.ahead import Ahead
from gpuconsole.insight.estimates import Estimate
from gpuconsole.insight.expected_start import Eta
from gpuconsole.insight.risk import Danger
from gpuconsole.model.clock import DAY, Time, format_span
from gpuconsole.model.workloads import PLACED, Phase
from gpuconsole.ui import format as fmt
from gpuconsole.ui.paint import Painted
from gpuconsole.ui.widgets.textpane import BLANK, heading, line


def still_open(found: Ahead | None, phase: Phase) -> Ahead | None:
    """The answer, unless it is one about another life: a start of what has started, a risk of what runs no more."""
    if found is None or phase in (Phase.FINISHED, Phase.FAILED):
        return None
    return found if (found.danger is not None) is (phase in PLACED) else None


def ahead_lines(found: Ahead, now: Time) -> list[Painted]:
    """Its range for the start, or its risk; none where nothing is foretold."""
    if found.eta is not None and found.eta.start is not None:
        lines = [BLANK, heading("STARTS"), *_start(found.eta, found.eta.start, now)]
    elif found.danger is not None:
        lines = [BLANK, heading("RISK"), *_risk(found.danger, found)]
    else:
        return []
    far = f"{format_span(found.until - found.time)} ahead from {fmt.since(now, found.time)} ago"
    age = f"{found.runs} runs of the cluster, {far}, with the run times and arrivals"
    return [*lines, line((f"  {age} of its past: likely, not promised", "dim"))]


def start_range(found: Estimate, now: Time) -> str:
    """`14:05–15:30 (80 %)`: when it starts in eight of ten cases; where no run saw that, only how far these looked."""
    if found.beyond:
        return f"not before {_moment(found.horizon, found.asked)}"
    return f"{moments(found, now) or f'later than {_moment(found.interval.last, found.asked)}'} (80 %)"


def moments(found: Estimate, now: Time) -> str:
    """The range alone, or what is left of it for who waits still; `>14:00 +1d` where no run saw it start by then."""
    until = found.horizon if found.beyond else found.interval.last
    if until < now:
        return ""
    if found.beyond:
        return f">{_moment(until, found.asked)}"
    return "–".join(_moment(time, found.asked) for time in (max(found.interval.first, now), until))


def _start(found: Eta, start: Estimate, now: Time) -> list[Painted]:
    trust = f"in any of {start.runs} runs" if start.beyond else f" {_calibration(start)}"
    lines = [line("  ", (start_range(start, now), "strong"), (f" {trust}", "dim"))]
    if found.within:
        lines.append(line("  ", " · ".join(f"within {format_span(o.span)} {o.probability:.0%}" for o in found.within)))
    if found.cohort is not None:
        place = f"number {found.cohort.place} of {found.cohort.of} in cohort {found.cohort.cohort}"
        lines.append(line(f"  {place}, by priority and age alone"))
    ends = f"{found.samples} ends of work of {found.goes_by}, {found.arrivals} arrivals"
    lines.append(line((f"  goes by {ends} in {format_span(found.arrivals_span)}", "dim")))
    return lines


def _calibration(start: Estimate) -> str:
    return f"calibrated by {start.calibrated_by} earlier estimates" if start.calibrated_by else "uncalibrated"


def _risk(danger: Danger, found: Ahead) -> list[Painted]:
    chance = danger.probability or 0.0
    role = "fault" if chance >= 0.5 else "victim" if chance else "good"
    words = f"{chance:.0%} that it is evicted within {format_span(found.until - found.time)}"
    lines = [line("  ", (words, role))]
    for cause in danger.causes:
        by = f" by {cause.by_queue}" if cause.by_queue else ""
        lines.append(line(f"    {cause.reason}{by}: {cause.runs} of {found.runs} runs"))
    lines += [line(f"    number {one.place} to go if {one.lender} takes its {one.flavor} back") for one in danger.turns]
    lost = "nobody knows what"
    if danger.lost_gpu_hours is not None and danger.cost is not None:
        lost = f"{danger.lost_gpu_hours:.1f} GPU-h, {fmt.money(danger.cost)}"
    lines.append(line((f"  an eviction now loses {lost}", "dim")))
    return lines


def _moment(time: Time, now: Time) -> str:
    """`14:05`, with the days until then."""
    days = time // DAY - now // DAY
    return fmt.clock(time)[:5] + (f" +{days}d" if days else "")
