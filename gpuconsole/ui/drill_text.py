"""Lines of a drill: the actions of a step, its outcome with the reasons, and the score of the predictions."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from gpuconsole.insight.drill import DrillEviction, PredictionScore, StepResult, UpcomingStep
from gpuconsole.insight.index.demand import wanted_units
from gpuconsole.insight.preemption.history import WORDS
from gpuconsole.insight.tables import counted
from gpuconsole.model.clock import format_span
from gpuconsole.model.cluster import Pod
from gpuconsole.model.commands import Command, Submit
from gpuconsole.model.decisions import CandidateVerdict
from gpuconsole.model.device_units import described
from gpuconsole.model.job import Job
from gpuconsole.model.objects import Object
from gpuconsole.model.pod_template import PodSet
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue.messages import paths_in
from gpuconsole.ui import whatif_changes
from gpuconsole.ui.paint import GLYPHS, Painted
from gpuconsole.ui.widgets.textpane import BLANK, heading, text_line

MOST = 12
"""Most objects that a step lists."""
MOST_CONSIDERED = 8


def coming_lines(coming: UpcomingStep, snapshot: Snapshot, said: Iterable[str]) -> list[Painted]:
    """The actions of the next step, and the predictions made for it."""
    lines = [_step(coming, "next step")]
    orders = [text for command in coming.commands for text in _order(command, snapshot)]
    lines += [text_line("  + ", text) for text in orders[:MOST] or ["no action: time passes"]]
    lines += [text_line((f"  … and {len(orders) - MOST} more", "dim"))] if len(orders) > MOST else []
    names = ", ".join(said) or "none"
    return [
        *lines,
        BLANK,
        text_line("Which workloads will be evicted? ", ("Space", "key"), " marks one. Predicted: ", (names, "strong")),
    ]


def played_lines(played: StepResult, label: Callable[[str], str]) -> list[Painted]:
    """The victims with their rules, the workloads that stayed and why, and the expectations of the drill.

    `label` gives the name that people use for a key.
    """
    verdict = ("✓ correct", "good") if played.right else ("✗ incorrect", "fault")
    lines = [(*_step(played.coming, "outcome"), (f"   {verdict[0]}", verdict[1]))]
    if not played.gone:
        lines.append(text_line("  No workload was evicted."))
    for one in played.gone:
        lines += _gone(one, played.named)
    lines += [_stayed(key, played.gone, label) for key in played.spared]
    lines += _choice(played.gone, label)
    if played.placed:
        lines.append(text_line(("  placed  ", "dim"), _several(played.placed)))
    if played.waiting:
        lines.append(text_line(("  pending ", "dim"), _several(_reasons(played.waiting))))
    if played.expected:
        lines += [BLANK, heading("EXPECTATIONS")]
        lines += [text_line("  ", ("✓ ", "good") if one.ok else ("✗ ", "fault"), one.text) for one in played.expected]
    return lines


def score_lines(score: PredictionScore, met: int, expected: int) -> list[Painted]:
    """The score of the predictions."""
    went = score.named + score.missed
    lines = [
        heading("SCORE"),
        text_line("  ", (f"{score.right} of {counted(score.steps, 'step')}", "strong"), " predicted correctly"),
        text_line(f"  {score.named} of {counted(went, 'victim')} predicted" if went else "  no evictions"),
    ]
    if score.spared:
        lines.append(text_line(f"  {counted(score.spared, 'false positive')}"))
    return [*lines, text_line((f"  {met} of {counted(expected, 'expectation')} of the drill met", "dim"))]


def _step(coming: UpcomingStep, what: str) -> Painted:
    at = f"after {format_span(coming.at)}" if coming.at else "at the start"
    return text_line((f"STEP {coming.number} OF {coming.of}", "title"), (f"  {at}: {what}", "dim"))


def _order(command: Command, snapshot: Snapshot) -> Iterator[str]:
    """A command in words; submitted objects with what decides their preemptions: size, queue, priority."""
    if not isinstance(command, Submit):
        yield whatif_changes.command_change(command).words
        return
    for obj in command.objects:
        yield _submitted(obj, snapshot)


def _submitted(obj: Object, snapshot: Snapshot) -> str:
    match obj:
        case Job(workload_priority_class=name, queue=queue):
            known = snapshot.workload_priority_classes.get(name) if name else None
            if known is not None:
                return _asks(snapshot, obj.key, obj.namespace, obj.pod_sets, queue, f"{name}, priority {known.value}")
            template = obj.pod_sets[0].template if obj.pod_sets else None
            of_pods = template.priority_class if template is not None else ""
            return _asks(snapshot, obj.key, obj.namespace, obj.pod_sets, queue, _class(of_pods, snapshot))
        case Workload():
            return _asks(snapshot, obj.key, obj.namespace, obj.pod_sets, obj.queue, f"priority {obj.priority}")
        case Pod(template=template):
            return _asks(
                snapshot,
                f"Pod/{obj.key}",
                obj.namespace,
                (PodSet(template=template),),
                "",
                _class(template.priority_class, snapshot),
            )
        case _:
            return f"{type(obj).__name__} {obj.key}"


def _class(name: str, snapshot: Snapshot) -> str:
    known = snapshot.priority_classes.get(name) if name else None
    return f"{name}, priority {known.value}" if known is not None else name


def _asks(snapshot: Snapshot, key: str, namespace: str, pod_sets: Sequence[PodSet], queue: str, priority: str) -> str:
    units = wanted_units(snapshot, Workload(namespace=namespace, name="", pod_sets=tuple(pod_sets)))
    pods = sum(pod_set.count for pod_set in pod_sets)
    size = f"{described(units)} in {counted(pods, 'pod')}"
    return " · ".join(text for text in (key, size, f"queue {queue}" if queue else "", priority) if text)


def _gone(one: DrillEviction, named: Sequence[str]) -> list[Painted]:
    mark = ("✓ ", "good") if one.key in named else ("✗ ", "fault")
    about = f"{counted(one.gpus, one.unit)}, priority {one.priority}"
    by = f" {GLYPHS['victim']} by {one.by}, priority {one.by_priority}" if one.by else ""
    said = "" if one.key in named else "   not predicted"
    first = text_line("  ", mark, (one.name, "strong"), f"  {about}", (by, "victim"), (said, "dim"))
    return [first, text_line((f"      after {format_span(one.at)}, {_why(one)}", "dim"))]


def _why(one: DrillEviction) -> str:
    """The rule and both paths of a preemption; the message of any other eviction."""
    by_path, path = paths_in(one.message)
    if path:
        return f"{one.reason}: {path} {GLYPHS['victim']} by {by_path}"
    return f"{one.reason}: {one.message}" if one.message and one.message != one.reason else one.reason


def _stayed(key: str, gone: Sequence[DrillEviction], label: Callable[[str], str]) -> Painted:
    """Why a workload that was predicted was not evicted."""
    considered = (one for each in gone if each.choice is not None for one in each.choice.considered)
    why = next((WORDS[one.verdict] for one in considered if one.workload == key), "not a candidate")
    return text_line("  ", ("✗ ", "fault"), (label(key), "strong"), "  not evicted", (f"   {why}", "dim"))


def _choice(gone: Sequence[DrillEviction], label: Callable[[str], str]) -> Iterator[Painted]:
    """The other candidates, once for each preemptor."""
    detail: set[str] = set()
    for one in gone:
        if one.choice is None or one.by in detail:
            continue
        detail.add(one.by)
        others = [other for other in one.choice.considered if other.verdict is not CandidateVerdict.CHOSEN]
        if others:
            yield text_line((f"  candidates for {one.by} that stayed:", "dim"))
        for other in others[:MOST_CONSIDERED]:
            yield text_line(f"    {label(other.workload)}, priority {other.priority}: ", (WORDS[other.verdict], "dim"))
        more = len(others) - MOST_CONSIDERED + one.choice.left_out
        if more > 0:
            yield text_line((f"    and {more} more", "dim"))


def _reasons(waiting: Mapping[str, str]) -> Iterator[str]:
    return (f"{name} ({code})" for name, code in waiting.items())


def _several(names: Iterable[str]) -> str:
    every = list(names)
    more = f" and {len(every) - MOST} more" if len(every) > MOST else ""
    return ", ".join(every[:MOST]) + more
