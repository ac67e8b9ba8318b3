"""Change lists as files: scenario steps without a cluster, read for a what-if and written by one.

horizon: 2h              # how far to look ahead
steps:
  - commands: [{type: set-quota, clusterQueue: cq-a, flavor: a100, resource: nvidia.com/gpu, nominal: 16}]
    create: [{apiVersion: batch/v1, kind: Job, …}]
  - advanceSeconds: 600  # ten minutes later
    delete: [team-a/train]
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from gpuconsole.model.clock import SECOND, Span, Time, format_exactly, parse_span
from gpuconsole.model.commands import Command, Delete, Finish, InCluster, Later, Submit
from gpuconsole.model.documents.metadata import GeneratedNames
from gpuconsole.model.objects import TABLES, Object
from gpuconsole.sim.scenario_form import Document, ScenarioError, StepForm
from gpuconsole.sim.scenario_steps import camel, read_steps
from gpuconsole.sim.strict_decode import convert

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
