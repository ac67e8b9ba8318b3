"""Lines about one workload: why it is pending or where it runs, its timeline, pods and events."""

from typing import NamedTuple

from gpuconsole.insight.forecast.forecast import Forecast
from gpuconsole.insight.forecast.workload_outlook import WorkloadOutlook
from gpuconsole.insight.index.gpu_map import gpu_map
from gpuconsole.insight.pending.pending import PendingExplanation
from gpuconsole.insight.pending.reasons import UNDER_WAY, PendingReason
from gpuconsole.insight.pending.why import Tried
from gpuconsole.insight.tables import counted
from gpuconsole.insight.timeline import Moment
from gpuconsole.model.clock import Time
from gpuconsole.model.cluster import Pod
from gpuconsole.model.device_units import DRA_DEVICE, WHOLE_GPU, described
from gpuconsole.model.events import HistoryEvent
from gpuconsole.model.snapshot import EMPTY, Snapshot
from gpuconsole.model.workloads import Workload, WorkloadPhase
from gpuconsole.ui import format as fmt
from gpuconsole.ui.describing.events import events
from gpuconsole.ui.forecast_text import forecast_lines
from gpuconsole.ui.names import called, named
from gpuconsole.ui.outlook_text import ahead_lines
from gpuconsole.ui.paint import GLYPHS, Painted, painted
from gpuconsole.ui.why_text import tried_lines, unblocking_lines
from gpuconsole.ui.widgets.textpane import BLANK, field, heading, text_line
from gpuconsole.ui.widgets.timeline import timeline_lines
from gpuconsole.ui.workload_columns import phase_cell
from gpuconsole.ui.workload_rows import make_row


class WorkloadFacts(NamedTuple):
    """The data for the lines about a workload."""

    workload: Workload
    explanation: PendingExplanation
    pods: tuple[Pod, ...]
    history: tuple[HistoryEvent, ...]
    life: tuple[Moment, ...]
    now: Time
    joined: str = ""
    """The links between its GPUs."""
    groups: tuple[str, ...] = ()
    """Its pod group in Volcano or KAI."""
    queued: bool = True
    """False without a Workload object, so that it has no conditions."""
    forecast: Forecast = Forecast()
    standing: str = ""
    """Its position according to Kueue."""
    snapshot: Snapshot = EMPTY
    """The cluster that it is in."""


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
    tried: Tried | None = None,
    snapshot: Snapshot = EMPTY,
    note: str = "",
    ahead: WorkloadOutlook | None = None,
) -> list[Painted]:
    """Why it is pending or where it runs, with the scheduler's message, its estimate and its timeline.

    The tested admission replaces the first explanation; `note` tells the state of the test.
    """
    found = facts.explanation
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
    if tried is not None and tried.suggestions is not None:
        lines += unblocking_lines(tried, snapshot, facts.now)
    elif found.remedies:
        lines += [BLANK, heading("WOULD UNBLOCK")]
        lines += [
            text_line("  ", ("✓ ", "good") if r.works else ("✗ ", "fault"), named(r.text)) for r in found.remedies
        ]
    if note:
        lines.append(text_line((f"  {note}", "dim")))
    if facts.workload.admission is not None and found.code in (PendingReason.NOT_WAITING, *UNDER_WAY):
        lines += _admission(facts.workload)
    if ahead is not None:
        lines += ahead_lines(ahead, facts.now)
    return [*lines, BLANK, heading("TIMELINE"), *timeline_lines(facts.life)]


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
    """Its pods with their nodes, its conditions and its events."""
    lines = [heading(f"PODS {len(facts.pods)}")]
    if not facts.pods:
        lines.append(text_line((f"  none{_why_no_pods(facts.workload)}", "dim")))
    pods = sorted(facts.pods, key=lambda pod: (pod.pod_set, pod.index, pod.name))
    lines += [pod_line(facts.snapshot, pod) for pod in pods]
    if facts.joined:
        lines.append(text_line((f"  {facts.joined}", "dim")))
    if facts.groups:
        lines += [BLANK, heading("POD GROUP"), *(text_line(f"  {text}") for text in facts.groups)]
    lines += [BLANK, heading("CONDITIONS")] if facts.queued else []
    for condition in facts.workload.conditions if facts.queued else ():
        mark = ("✓", "good") if condition.status else ("✗", "dim")
        since = fmt.since(facts.now, condition.since)
        reason = condition.reason if condition.reason != condition.type else ""
        lines.append(text_line("  ", mark, f" {condition.type} {reason}", (f" {since} ago", "dim")))
    return [*lines, *events(facts.history, facts.now)]


def pod_line(snapshot: Snapshot, pod: Pod) -> Painted:
    """A pod with its phase, its node and its GPUs, MIG instances, replicas or DRA devices."""
    looks = {"Running": ("●", "running"), "Pending": ("◐", "pending"), "Failed": ("⚠", "fault")}
    glyph, role = looks.get(pod.phase, ("✓", "dim"))
    row = gpu_map(snapshot).by_node.get(pod.node)
    unit = row.unit.noun if row is not None else WHOLE_GPU.noun
    gpus = f"  {unit} {','.join(map(str, pod.gpus))}" if pod.gpus else ""
    gpus += "".join(f"  MIG {one.profile} of GPU {one.gpu}" for one in pod.slices)
    claimed = [cell.device for cell in row.devices if cell.pod == pod.key and cell.device] if row is not None else []
    gpus += f"  {DRA_DEVICE.noun} {','.join(claimed)}" if claimed else ""
    where = pod.node or (pod.reason or "unscheduled")
    return text_line("  ", (f"{glyph} {pod.phase}", role), f"  {pod.name}  {where}", (gpus, "own"))
