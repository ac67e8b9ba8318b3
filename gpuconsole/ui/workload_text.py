"""Lines about one workload: why it is pending or where it runs, estimates, forecast, timeline, pods and events.

For a pending workload also the admission attempt, and the changes that would unblock it.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from gpuconsole.insight.cost.report import JobCost, cost_at_end
from gpuconsole.insight.forecast.estimates import Estimate
from gpuconsole.insight.forecast.expected_start import Eta
from gpuconsole.insight.forecast.forecast import Forecast, ForecastAction, WorkloadForecast, WorkloadOutlook, in_words
from gpuconsole.insight.index.gpu_map import gpu_map
from gpuconsole.insight.pending.pending import PendingExplanation
from gpuconsole.insight.pending.reasons import UNDER_WAY, PendingReason
from gpuconsole.insight.pending.shortage import room_lines
from gpuconsole.insight.pending.why import PLACES, Tried, flavor_lines, suggestion_texts
from gpuconsole.insight.preemption.risk import WorkloadRisk
from gpuconsole.insight.tables import counted
from gpuconsole.insight.timeline import LifePhase, Moment, phases
from gpuconsole.insight.unblock.search import Suggestion
from gpuconsole.model.clock import DAY, Time, format_span
from gpuconsole.model.cluster import Pod, PodPhase
from gpuconsole.model.cooperative import Progress
from gpuconsole.model.devices import DRA_DEVICE, WHOLE_GPU, described
from gpuconsole.model.events import HistoryEvent, HistoryEventKind
from gpuconsole.model.snapshot import EMPTY, Snapshot
from gpuconsole.model.workloads import PLACED, Workload, WorkloadPhase
from gpuconsole.ui import format as fmt
from gpuconsole.ui.describe import events, mig_names
from gpuconsole.ui.names import called, named
from gpuconsole.ui.paint import GLYPHS, Cell, Painted, join, painted
from gpuconsole.ui.table_model import Column
from gpuconsole.ui.widgets.painter import share
from gpuconsole.ui.widgets.textpane import BLANK, Pick, field, heading, text_line
from gpuconsole.ui.workload_table import WorkloadRow, make_row, phase_cell

LOOKS: dict[HistoryEventKind, tuple[str, str]] = {
    HistoryEventKind.SUBMITTED: ("+", "key"),
    HistoryEventKind.PENDING: (GLYPHS["pending"], "pending"),
    HistoryEventKind.RESERVED: ("◒", "held"),
    HistoryEventKind.ADMITTED: (GLYPHS["good"], "good"),
    HistoryEventKind.STARTED: (GLYPHS["running"], "running"),
    HistoryEventKind.PREEMPTED: (GLYPHS["victim"], "victim"),
    HistoryEventKind.EVICTED: (GLYPHS["victim"], "victim"),
    HistoryEventKind.REQUEUED: ("↻", "pending"),
    HistoryEventKind.FINISHED: (GLYPHS["good"], "dim"),
    HistoryEventKind.FAILED: (GLYPHS["fault"], "fault"),
    HistoryEventKind.GANG_WAITING: (GLYPHS["pending"], "pending"),
    HistoryEventKind.PLACES: (GLYPHS["pending"], "pending"),
    HistoryEventKind.DEADLOCK: (GLYPHS["fault"], "fault"),
    HistoryEventKind.COMMAND_REFUSED: (GLYPHS["fault"], "fault"),
}
"""Kind of a timeline event → its glyph and role; other kinds are a dim dot."""


PHASES: Mapping[LifePhase, tuple[str, str]] = {
    LifePhase.PENDING: ("░", "pending"),
    LifePhase.RESERVED: ("▒", "held"),
    LifePhase.ADMITTED: ("▓", "lent"),
    LifePhase.RUNNING: ("█", "running"),
    LifePhase.EVICTED: (GLYPHS["victim"], "victim"),
}
"""Phase of a workload → its glyph and role in the bar."""
BAR = 60
"""Width of the bar."""


def phase_lines(moments: Sequence[Moment], now: Time) -> list[Painted]:
    """A bar of the phases of a workload, each at least a cell, and the total time in each; empty without phases."""
    found = phases(moments, now)
    if not found:
        return []
    cells = share(BAR, tuple(span for _, span in found))
    bar = [(PHASES[phase][0] * cell, PHASES[phase][1]) for (phase, _), cell in zip(found, cells, strict=True) if cell]
    totals: Counter[LifePhase] = Counter()
    for phase, span in found:
        totals[phase] += span
    legend = [
        ((f"{glyph} {one} ", role), (fmt.age(totals[one]), ""))
        for one, (glyph, role) in PHASES.items()
        if one in totals
    ]
    return [text_line(" ", *bar), text_line(" ", *join(legend))]


def timeline_lines(moments: Iterable[Moment]) -> list[Painted]:
    """A line for each event, oldest first, with the scheduler's message where it adds information."""
    lines: list[Painted] = []
    for moment in moments:
        glyph, role = LOOKS.get(moment.what, ("·", "dim")) if moment.what is not None else ("·", "dim")
        step = f"+{fmt.age(moment.after)}" if moment.after else ""
        head = (f" {fmt.clock(moment.time)} {step:>8} ", "dim")
        cost = f" · {fmt.money(moment.cost)}" if moment.cost else ""
        times = f" {fmt.repeats(moment.count, moment.last - moment.time)}" if moment.count > 1 else ""
        detail = f" {named(moment.detail)}{cost}" if moment.detail or cost else ""
        lines.append((head, (f"{glyph} {moment.title}", role), (f"{times}{detail}", "")))
    return lines


def tried_lines(tried: Tried) -> Iterator[Painted]:
    """Return lines about the admission attempt: flavors with assignment modes, and the quota at each level."""
    for text in flavor_lines(tried.why) if tried.why.considered else tried.why.explanation.lines:
        yield text_line(f"    {named(text)}")
    for room in tried.why.rooms:
        for number, text in enumerate(room_lines(room)):
            yield text_line((f"    {named(text)}", "" if not number else "dim"))
    condition = next((one for one in tried.why.evidence if one.source != "engine"), None)
    if condition is not None and condition.code not in (tried.why.code, PendingReason.OTHER, *PLACES):
        yield text_line((f"    that condition is stale ({condition.code}): now {tried.why.code}", "pending"))


def pick_of(suggestion: Suggestion) -> str:
    """Return the key of a suggestion's line, so that the cursor stays on it when more suggestions are found."""
    return str(suggestion.steps)


def unblocking_lines(progress: Progress[Tried], snapshot: Snapshot, now: Time) -> Iterator[Painted]:
    """Return lines with the changes that would admit the workload, each tested in a fork, or the search's progress."""
    tried = progress.answer
    if tried is None or tried.suggestions is None:
        return
    yield BLANK
    yield heading("WOULD UNBLOCK")
    found = iter(tried.suggestions.found)
    for mark, text in suggestion_texts(tried.why, tried.suggestions, snapshot):
        match mark:
            case "✓":
                yield Pick(text_line("  ", ("✓ ", "good"), named(text)), pick_of(next(found)))
            case "⚠":
                yield text_line("    ", ("⚠ ", "pending"), named(text))
            case "" if progress.last:
                yield text_line("    ", named(text))
    if not progress.last:
        done = f"{progress.done} of {progress.total} kinds done, {tried.suggestions.tried} changes tested"
        yield text_line((f"  … testing {progress.doing}: {done}", "pending"))
        return
    yield text_line((f"  {tried.suggestions.tried} changes tested, {fmt.since(now, tried.time)} ago", "dim"))


def still_open(found: WorkloadOutlook | None, phase: WorkloadPhase) -> WorkloadOutlook | None:
    """Return the estimate if it still applies: a start for pending workloads, a risk for running ones; else None."""
    if found is None or phase in (WorkloadPhase.FINISHED, WorkloadPhase.FAILED):
        return None
    return found if (found.risk is not None) is (phase in PLACED) else None


def ahead_lines(found: WorkloadOutlook, now: Time) -> list[Painted]:
    """Return lines about a workload's estimated start, or its preemption risk; none if neither is known."""
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
    """Format an estimated start: `14:05–15:30 (80% interval)`; if it starts in no simulation run, the horizon."""
    if found.beyond:
        return f"not before {_moment(found.horizon, found.asked)}"
    return f"{moments(found, now) or f'later than {_moment(found.interval.last, found.asked)}'} (80% interval)"


def moments(found: Estimate, now: Time) -> str:
    """Format the interval of an estimated start, from now on; empty if it has passed.

    `>14:00 +1d` is the horizon of the simulation runs, if the workload starts in none of them.
    """
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


_ORDER = {fate: place for place, fate in enumerate(ForecastAction)}


def forecast_cell(prospect: WorkloadForecast | None) -> Cell:
    """Format what the next scheduling cycles do to a workload: its admission, preemptions, or that it stays pending."""
    if prospect is None:
        return ""
    match prospect.fate:
        case ForecastAction.ADMITTED:
            return ((f"{GLYPHS['good']} cycle {prospect.cycle}", "good"),)
        case ForecastAction.AFTER_VICTIMS:
            return ((f"{GLYPHS['pending']} preempts {len(prospect.victims)}", "pending"),)
        case ForecastAction.PREEMPTED:
            return ((f"{GLYPHS['victim']} by {called(prospect.by)}", "victim"),)
        case ForecastAction.WAITS:
            return (("pending", "dim"),)


def forecast_column(newest: Callable[[], Forecast]) -> Column[WorkloadRow]:
    """Return the FORECAST column for live clusters, which reads the `newest` forecast while drawing."""

    def order(row: WorkloadRow) -> tuple[int, int]:
        prospect = newest().of(row.key)
        return (_ORDER[prospect.fate], prospect.cycle) if prospect is not None else (len(_ORDER), 0)

    return Column(
        "FORECAST",
        lambda row: forecast_cell(newest().of(row.key)),
        id="forecast",
        width=12,
        flex=1,
        sort=order,
        rank=1,
    )


def forecast_lines(forecast: Forecast, workload: str, now: Time) -> list[Painted]:
    """Return lines with a workload's forecast, its age and its assumptions; none without a forecast."""
    prospect = forecast.of(workload)
    if prospect is None:
        return []
    age = f"simulated {fmt.since(now, forecast.time)} ago: an estimate, not a reservation"
    lines = [
        BLANK,
        heading("FORECAST"),
        text_line("  ", (named(in_words(prospect)), "strong")),
        text_line((f"  {age}", "dim")),
    ]
    return [*lines, *(text_line((f"  {text}", "dim")) for text in (*forecast.assumed, *forecast.queues))]


class WorkloadCost(NamedTuple):
    """What a workload has cost and costs."""

    accrued: JobCost | None
    """By the recorded costs; None without a stored history, or if nothing is recorded of it."""
    hourly: float
    """Present rate in USD per hour."""
    ends: Time | None
    """Its expected end by its declared duration; None if unknown."""


class WorkloadFacts(NamedTuple):
    """The data that the lines about a workload show."""

    workload: Workload
    explanation: PendingExplanation
    pods: tuple[Pod, ...]
    history: tuple[HistoryEvent, ...]
    life: tuple[Moment, ...]
    now: Time
    joined: str = ""
    """How the workload's GPUs are linked, and how much they are used, as text."""
    groups: tuple[str, ...] = ()
    """Lines about its pod group in Volcano or KAI."""
    queued: bool = True
    """Whether it has a Workload object, and so conditions."""
    forecast: Forecast = Forecast()
    standing: str = ""
    """A sentence about its position according to Kueue."""
    snapshot: Snapshot = EMPTY
    """The Snapshot of its cluster."""
    cost: WorkloadCost | None = None
    """None if it was not computed."""
    agreement: str = ""
    """How often the engine decided as Kueue did, as a sentence; empty where nothing compares them."""


def title(facts: WorkloadFacts) -> Painted:
    workload = facts.workload
    row = make_row(workload, "", facts.snapshot)
    part = f"{row.pods} of " if row.pods < row.requested_pods else ""
    size = f"{described(row.units)} in {part}{counted(row.requested_pods, 'pod')}"
    rank = f"priority {workload.priority} {workload.priority_class}".rstrip()
    return ((f" {called(workload.key)} ", "title"), (f" {row.kind} · {size} · {rank}", ""))


def state(facts: WorkloadFacts) -> Painted:
    row = make_row(facts.workload, "", facts.snapshot)
    since = f" {fmt.since(facts.now, row.since)}"
    place = facts.explanation.position
    words = ""
    if row.phase is WorkloadPhase.PENDING and place is not None:
        words = f" · {place.in_cluster_queue} of {place.of_cluster_queue} in {place.cluster_queue}"
    elif facts.workload.cluster_queue:
        words = f" · {facts.workload.cluster_queue}"
    return ((" ", ""), *painted(phase_cell(row.phase)), (f"{since}{words} ", ""))


def why_lines(
    facts: WorkloadFacts,
    progress: Progress[Tried] | None = None,
    snapshot: Snapshot = EMPTY,
    note: str = "",
    ahead: WorkloadOutlook | None = None,
) -> list[Painted]:
    """Return lines why it is pending or where it runs, with the scheduler's message, estimates and timeline.

    `progress` has the tested admission, which replaces the first explanation; `note` tells the state of the test.
    """
    found = facts.explanation
    tried = progress.answer if progress is not None else None
    lines = [
        heading("WHY"),
        text_line("  ", (named((tried.why.explanation if tried is not None else found).headline), "strong")),
    ]
    if found.text:
        age = f" (≤ {fmt.since(facts.now, found.since)} old)" if found.since else ""
        lines.append(text_line((f"  {found.source} condition{age}: ", "dim"), found.text))
    lines += tried_lines(tried) if tried is not None else [text_line(f"    {named(text)}") for text in found.lines]
    if found.inadmissible:
        lines.append(text_line(("    inadmissible: Kueue requeues it after a change in its cohort", "dim")))
    if found.position is not None and found.position.gpus_ahead:
        lines.append(text_line(f"    pending ahead of it: {counted(found.position.gpus_ahead, found.position.unit)}"))
    if facts.standing:
        lines.append(text_line((f"    {facts.standing}", "dim")))
    lines += forecast_lines(facts.forecast, facts.workload.key, facts.now)
    lines += _holders(found, facts.now)
    if progress is not None and tried is not None and tried.suggestions is not None:
        lines += unblocking_lines(progress, snapshot, facts.now)
    elif found.remedies:
        lines += [BLANK, heading("WOULD UNBLOCK")]
        lines += [
            text_line("  ", ("✓ ", "good") if r.works else ("✗ ", "fault"), named(r.text)) for r in found.remedies
        ]
    if note:
        lines.append(text_line((f"  {note}", "dim")))
    if facts.workload.admission is not None and found.code in (PendingReason.NOT_WAITING, *UNDER_WAY):
        lines += _admission(facts.workload)
    estimated = ahead_lines(ahead, facts.now) if ahead is not None else []
    lines += estimated
    if facts.agreement and (estimated or facts.forecast.of(facts.workload.key) is not None):
        lines.append(text_line((f"  {facts.agreement}", "dim")))
    return [*lines, BLANK, heading("TIMELINE"), *phase_lines(facts.life, facts.now), *timeline_lines(facts.life)]


def _holders(found: PendingExplanation, now: Time) -> list[Painted]:
    if not found.holders:
        return []
    lines = [BLANK, heading("USED BY")]
    for holder in found.holders:
        borrowed = f" {GLYPHS['borrowed']}{holder.borrowed}" if holder.borrowed else ""
        # By its own declaration; estimated starts do not use it and may be earlier.
        ends = (
            f", expected to finish in ~{fmt.age(holder.ends - now)}"
            if holder.ends is not None and holder.ends > now
            else ""
        )
        about = f"({holder.queue}, priority {holder.priority}{ends})"
        lines.append(
            text_line(
                "  ",
                (called(holder.workload), "strong"),
                f" {counted(holder.gpus, holder.unit)}",
                (borrowed, "borrowed"),
                (f"  {about}", "dim"),
            )
        )
    return lines


def _admission(workload: Workload) -> list[Painted]:
    lines = [BLANK, heading("ADMITTED")]
    if workload.admission is not None:
        for assignment in workload.admission.pod_sets:
            amounts = [
                f"{fmt.amount(resource, amount)} {fmt.resource(resource)} from {assignment.flavors.get(resource, '?')}"
                for resource, amount in assignment.usage.items()
            ]
            lines.append(field(f"  {assignment.name} ×{assignment.count}", ", ".join(amounts), width=14))
    return lines


def _why_no_pods(workload: Workload) -> str:
    if workload.finished:
        return ""
    if workload.cluster:
        return f" here: its pods are in cluster {workload.cluster}"
    return "" if workload.admitted else ": pods are created on admission"


def pod_lines(facts: WorkloadFacts) -> list[Painted]:
    """Return lines with the workload's pods and nodes, its conditions and its events."""
    lines = [heading(f"PODS {len(facts.pods)}")]
    if not facts.pods:
        lines.append(text_line((f"  none{_why_no_pods(facts.workload)}", "dim")))
    pods = sorted(facts.pods, key=lambda pod: (pod.pod_set, pod.index, pod.name))
    lines += [pod_line(facts.snapshot, pod) for pod in pods]
    if facts.joined:
        lines.append(text_line((f"  {facts.joined}", "dim")))
    lines += cost_lines(facts.cost, facts.now)
    if facts.groups:
        lines += [BLANK, heading("POD GROUP"), *(text_line(f"  {text}") for text in facts.groups)]
    lines += [BLANK, heading("CONDITIONS")] if facts.queued else []
    for condition in facts.workload.conditions if facts.queued else ():
        mark = ("✓", "good") if condition.status else ("✗", "dim")
        since = fmt.since(facts.now, condition.since)
        reason = condition.reason if condition.reason != condition.type else ""
        lines.append(text_line("  ", mark, f" {condition.type} {reason}", (f" {since} ago", "dim")))
    return [*lines, *events(facts.history, facts.now)]


def cost_lines(cost: WorkloadCost | None, now: Time) -> list[Painted]:
    """Lines with the accrued cost of a workload, its present rate, and the cost at its expected end."""
    if cost is None or (cost.accrued is None and not cost.hourly):
        return []
    accrued, parts = cost.accrued, []
    if accrued is not None:
        parts.append(f"{fmt.money(accrued.total_cost_usd)} accrued in {accrued.total_gpu_hours:,.1f} GPU-hours")
    if accrued is not None and accrued.cost_per_epoch is not None:
        parts.append(f"{fmt.money(accrued.cost_per_epoch)} per epoch")
    if cost.hourly:
        parts.append(f"{fmt.money(cost.hourly)}/h")
    lines = [BLANK, heading("COST"), text_line(f"  {' · '.join(parts)}")]
    if accrued is not None and cost.hourly:
        remaining = max(0, cost.ends - now) if cost.ends is not None else None
        end = cost_at_end(accrued.total_cost_usd, cost.hourly, remaining)
        known = f"{fmt.money(end)} at its expected end" if end is not None else "cost at its end unknown: no duration"
        lines.append(text_line((f"  {known}" + (f" in {fmt.age(remaining)}" if remaining else ""), "dim")))
    return lines


_POD_PHASES = {
    PodPhase.RUNNING: (GLYPHS["running"], "running"),
    PodPhase.PENDING: (GLYPHS["pending"], "pending"),
    PodPhase.FAILED: (GLYPHS["fault"], "fault"),
    PodPhase.SUCCEEDED: (GLYPHS["good"], "dim"),
}


def pod_phase(pod: Pod) -> Painted:
    """Format a pod's phase with its glyph; a pod that is being deleted is `Terminating`, as kubectl shows it."""
    if pod.deleted and not pod.done:
        return ((f"{GLYPHS['victim']} Terminating", "victim"),)
    glyph, role = _POD_PHASES[pod.phase]
    return ((f"{glyph} {pod.phase}", role),)


def pod_line(snapshot: Snapshot, pod: Pod) -> Painted:
    """Describe a pod in a line: phase, node, and GPUs, MIG instances, replicas or DRA devices."""
    row = gpu_map(snapshot).by_node.get(pod.node)
    unit = row.unit.noun if row is not None else WHOLE_GPU.noun
    gpus = f"  {unit} {','.join(map(str, pod.gpus))}" if pod.gpus else ""
    gpus += "".join(f"  {name}" for name in mig_names(pod))
    claimed = [cell.device for cell in row.devices if cell.pod == pod.key and cell.device] if row is not None else []
    gpus += f"  {DRA_DEVICE.noun} {','.join(claimed)}" if claimed else ""
    where = pod.node or (pod.reason or "unscheduled")
    return text_line("  ", *pod_phase(pod), f"  {pod.name}  {where}", (gpus, "own"))
