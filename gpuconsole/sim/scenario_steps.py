"""The steps of a scenario: time, commands and expectations of each.

Change lists as files: scenario steps without a cluster, read for a what-if and written by one.

horizon: 2h              # how far to look ahead
steps:
  - commands: [{type: set-quota, clusterQueue: cq-a, flavor: a100, resource: nvidia.com/gpu, nominal: 16}]
    create: [{apiVersion: batch/v1, kind: Job, …}]
  - advanceSeconds: 600  # ten minutes later
    delete: [team-a/train]
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import msgspec
from msgspec import NODEFAULT, Struct, defstruct, field, structs

from gpuconsole.model import commands
from gpuconsole.model.clock import LONGEST, SECOND, Span, Time, format_exactly, parse_span
from gpuconsole.model.commands import Command, Delete, Finish, InCluster, Later, Submit
from gpuconsole.model.documents.metadata import GeneratedNames
from gpuconsole.model.manifests import decode_objects
from gpuconsole.model.manifests.kinds import JOB_NAMES
from gpuconsole.model.objects import TABLES, Object
from gpuconsole.model.text import clean
from gpuconsole.sim.scenario_form import Document, ScenarioError, StepForm
from gpuconsole.sim.strict_decode import convert

_FORMS: dict[str, type[Any]] = {
    "delete": commands.Delete,
    "set-active": commands.SetActive,
    "requeue": commands.Requeue,
    "set-priority": commands.SetPriority,
    "move-to-queue": commands.MoveToQueue,
    "set-stop-policy": commands.SetStopPolicy,
    "set-quota": commands.SetQuota,
    "set-weight": commands.SetWeight,
    "set-cohort": commands.SetCohort,
    "set-preemption": commands.SetPreemption,
    "set-taint": commands.SetTaint,
    "add-nodes": commands.AddNodes,
    "divide": commands.Divide,
    "reconfigure": commands.Reconfigure,
    "cordon": commands.Cordon,
    "drain": commands.Drain,
    "fail-node": commands.FailNode,
    "restore-node": commands.RestoreNode,
    "interrupt-spot": commands.InterruptSpot,
    "lose-cluster": commands.LoseCluster,
    "restore-cluster": commands.RestoreCluster,
    "answer-check": commands.AnswerCheck,
    "fail-pod": commands.FailPod,
    "scale": commands.Scale,
    "copy": commands.Copy,
    "finish": commands.Finish,
}
_WITHIN = "in-cluster"
COMMANDS = (*_FORMS, _WITHIN)
"""The types of commands that a step may give."""
_KINDS = {kind.__name__: table for kind, table in TABLES.items()}


class Step(Struct, frozen=True, kw_only=True):
    """The commands of one moment, and the expectations after them."""

    at: Time
    commands: tuple[Command, ...] = ()
    places: tuple[str, ...] = ()
    """Place of each command in the file, for messages."""
    expect: tuple[Mapping[str, Any], ...] = ()
    """As written; the runner of drills reads it."""


def read_steps(forms: Sequence[StepForm], start: Time, problems: list[str], names: GeneratedNames) -> tuple[Step, ...]:
    """Read steps with their times; errors are added to `problems`."""
    steps, at = [], start
    for number, form in enumerate(forms):
        path = f"steps[{number}]"
        if form.advance_seconds < 0:
            problems.append(f"{path}.advanceSeconds: {form.advance_seconds:g} is before the last step; time goes on")
        span = max(0.0, form.advance_seconds) * SECOND
        if span > LONGEST:
            said = f"{form.advance_seconds:g} is longer than can be simulated; 292 years are the most"
            problems.append(f"{path}.advanceSeconds: {said}")
        at += round(min(span, LONGEST))
        found = list(_commands(form, path, at, problems, names))
        orders, places = tuple(order for order, _ in found), tuple(place for _, place in found)
        steps.append(Step(at=at, commands=orders, places=places, expect=form.expect))
    return tuple(steps)


def decode_all(
    documents: Sequence[Document], path: str, now: Time, problems: list[str], names: GeneratedNames
) -> tuple[Object, ...]:
    """Decode API objects as from files; errors are added to `problems`."""
    found, unread = decode_objects(documents, now=now, names=names)
    problems.extend(f"{path}[{document.position}]: {document.problem}" for document in unread)
    return found


_Placed = tuple[Command, str]
"""A command, and where it is written."""


def _commands(form: StepForm, path: str, at: Time, problems: list[str], names: GeneratedNames) -> Iterator[_Placed]:
    yield from ((Finish(key), f"{path}.finish[{number}]") for number, key in enumerate(form.finish))
    for number, name in enumerate(form.delete):
        place = f"{path}.delete[{number}]"
        yield from ((order, place) for order in _deletion(name, place, problems))
    for number, document in enumerate(form.commands):
        yield from _command(document, f"{path}.commands[{number}]", at, problems, names)
    created = decode_all(form.create, f"{path}.create", at, problems, names)
    if created:
        manifests = tuple(msgspec.json.encode(document).decode() for document in form.create)
        yield Submit(created, manifests), f"{path}.create"


class _WithinForm(Struct, frozen=True):
    """A step's events in a worker cluster: commands, then created objects."""

    type: str
    cluster: str
    commands: tuple[Document, ...] = ()
    create: tuple[Document, ...] = ()


def _within(document: Document, path: str, at: Time, problems: list[str], names: GeneratedNames) -> Iterator[_Placed]:
    form = convert(document, _WithinForm, path, problems)
    if form is not None:
        step = StepForm(commands=form.commands, create=form.create)
        found = _commands(step, path, at, problems, names)
        yield from ((InCluster(form.cluster, order), place) for order, place in found)


def _command(document: Document, path: str, at: Time, problems: list[str], names: GeneratedNames) -> Iterator[_Placed]:
    if document.get("type") == _WITHIN:
        yield from _within(document, path, at, problems, names)
        return
    form = _FORMS.get(str(document.get("type")))
    if form is None:
        problems.append(
            f"{path}.type: {clean(repr(document.get('type')), 60)} is no command; {', '.join(COMMANDS)} are"
        )
        return
    fields = {key: value for key, value in document.items() if key != "type"}
    found = convert(fields, _written(document["type"]), path, problems)
    if found is not None:
        subject = str(getattr(found, found.__struct_fields__[0]))
        yield form(**structs.asdict(found)), clean(f"{path} ({document['type']} {subject})", 120)


@cache
def _written(kind: str) -> type[Struct]:
    """The fields of a command as written in files."""
    fields: list[Any] = [
        (one.name, one.type) if one.required else (one.name, one.type, _default(one))
        for one in structs.fields(_FORMS[kind])
    ]
    return defstruct(_FORMS[kind].__name__, fields, rename="camel", frozen=True)


def _default(one: structs.FieldInfo) -> Any:
    return field(default_factory=one.default_factory) if one.default is NODEFAULT else one.default


def camel(name: str) -> str:
    """A field's name as written in files."""
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def _deletion(name: str, path: str, problems: list[str]) -> Iterator[Command]:
    kind, _, key = name.partition("/")
    if kind in JOB_NAMES and "/" in key:
        yield Delete("jobs", name)
    elif kind in _KINDS and key:
        yield Delete(_KINDS[kind], key)
    elif key and "/" not in key:
        yield Delete("", name)
    else:
        problems.append(f"{path}: {clean(repr(name), 80)} is no name; write namespace/name, or Kind/name")


Manifests = Callable[[Object], Mapping[str, Any]]


class ChangeForm(Struct, frozen=True, rename="camel"):
    """A change list as written in a file."""

    name: str = ""
    description: str = ""
    horizon: str = ""
    steps: tuple[StepForm, ...] = ()


class Changes(Struct, frozen=True, kw_only=True):
    """A list of changes: immediate and later commands."""

    name: str = ""
    commands: tuple[Command, ...] = ()
    places: tuple[str, ...] = ()
    """Place of each command in the file, for messages."""
    horizon: Span | None = None


def read_changes(
    documents: Sequence[Document],
    source: str,
    now: Time,
    *,
    objects: Sequence[Object] = (),
    names: GeneratedNames | None = None,
) -> Changes:
    """Read a list of changes. `objects` are manifests given with it: they are submitted first.

    `names` holds the names generated so far, such as those of `objects`. The first step is at `now`. Raises
    ScenarioError that names every wrong key of `source`.
    """
    if len(documents) > 1:
        raise ScenarioError(f"{source}: there are {len(documents)} lists of changes; give one")
    problems: list[str] = []
    form = convert(documents[0] if documents else {}, ChangeForm, "", problems)
    asked: list[Command] = [Submit(tuple(objects))] if objects else []
    places = ["manifests"] if objects else []
    horizon = None
    if form is not None:
        problems += (
            f"steps[{number}].expect: expectations belong in drills, not in changes"
            for number, step in enumerate(form.steps)
            if step.expect
        )
        for step in read_steps(form.steps, now, problems, names or GeneratedNames(str(now))):
            asked += (command if step.at == now else Later(step.at - now, command) for command in step.commands)
            places += step.places
        horizon = _horizon(form.horizon, problems)
    if not asked and not problems:
        problems.append("no changes; add steps with commands, create or delete")
    if problems or form is None:
        raise ScenarioError("\n".join(f"{source}: {problem}" for problem in problems))
    return Changes(name=form.name, commands=tuple(asked), places=tuple(places), horizon=horizon)


def as_changes(commands: Iterable[Command], horizon: Span, manifest: Manifests) -> Document:
    """The document from which `read_changes` reads these commands.

    `manifest` makes the manifest of an object that was submitted without one.
    """
    steps: list[Document] = []
    reached: Span = 0
    for command in sorted(commands, key=_moment):
        moment, order = _moment(command), command
        while isinstance(order, Later):
            order = order.command
        step: Document = {}
        if moment > reached:
            step["advanceSeconds"] = (moment - reached) / SECOND
            reached = moment
        steps.append(step | _written_changes(order, manifest))
    return {"horizon": format_exactly(horizon), "steps": steps}


def _horizon(text: str, problems: list[str]) -> Span | None:
    if not text:
        return None
    try:
        return parse_span(text)
    except ValueError as error:
        problems.append(f"horizon: {error}")
        return None


def _moment(command: Command) -> Span:
    return command.after + _moment(command.command) if isinstance(command, Later) else 0


def _written_changes(command: Command, manifest: Manifests) -> Document:
    match command:
        case Submit(objects, documents):
            return {"create": [msgspec.json.decode(text) for text in documents] or [dict(manifest(o)) for o in objects]}
        case Finish(key):
            return {"finish": [key]}
        case Delete(table, key):
            return {"delete": [_deleted(table, key)]}
        case InCluster(cluster, Submit() as order):
            return {"commands": [{"type": "in-cluster", "cluster": cluster, **_written_changes(order, manifest)}]}
        case InCluster(cluster, order):
            return {"commands": [{"type": "in-cluster", "cluster": cluster, "commands": [_plain(order)]}]}
        case _:
            return {"commands": [_plain(command)]}


def _plain(command: Command) -> Document:
    fields = msgspec.to_builtins(command)
    return {camel(name): value for name, value in fields.items()}


def _deleted(table: str, key: str) -> str:
    kinds = {name: kind.__name__ for kind, name in TABLES.items()}
    return key if table in ("", "jobs") else f"{kinds[table]}/{key}"
