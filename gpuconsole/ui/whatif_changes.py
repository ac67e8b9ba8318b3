"""The changes of a what-if, each as text and as Commands, and functions that open the what-if screen with one."""

from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec
from msgspec import Struct

from gpuconsole.insight.index.demand import wanted_units
from gpuconsole.insight.tables import counted
from gpuconsole.model.clock import Span, format_exactly
from gpuconsole.model.commands import (
    Command,
    Copy,
    Cordon,
    Drain,
    FailNode,
    Later,
    Requeue,
    SetActive,
    SetPriority,
    SetQuota,
    SetStopPolicy,
    Submit,
)
from gpuconsole.model.devices import in_one_unit
from gpuconsole.model.manifests import load_text
from gpuconsole.model.objects import Object
from gpuconsole.model.queues import ClusterQueue, Quota, StopPolicy
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.text import clean
from gpuconsole.model.workloads import Workload
from gpuconsole.ui import format as fmt
from gpuconsole.ui.names import called
from gpuconsole.ui.screens.base import AppServices, ConsoleScreen
from gpuconsole.ui.screens.views import load
from gpuconsole.ui.widgets.dialogs import ChoiceOption
from gpuconsole.ui.yaml_view import as_documents, as_yaml


class WhatIfChange(Struct, frozen=True):
    """One change of a what-if: its description in words, and the Commands that make it."""

    words: str
    commands: tuple[Command, ...]


def submit(objects: Sequence[Object], what: str, documents: Sequence[str] = ()) -> WhatIfChange:
    """Submit these objects to the fork; `documents` are their manifests, if any."""
    return WhatIfChange(f"submit {what}", (Submit(tuple(objects), tuple(documents)),))


def later(change: WhatIfChange, after: Span) -> WhatIfChange:
    """Return the same change, made after a delay in the simulation."""
    if not after:
        return change
    return WhatIfChange(
        f"after {format_exactly(after)}: {change.words}", tuple(Later(after, c) for c in change.commands)
    )


def command_change(command: Command) -> WhatIfChange:
    """Make a change of any Command, described by its type and fields, as in a step of a scenario."""
    moment = f"after {format_exactly(command.after)}: " if isinstance(command, Later) else ""
    order = command.command if isinstance(command, Later) else command
    if isinstance(order, Submit):
        names = ", ".join(called(obj.key) for obj in order.objects[:3])
        return WhatIfChange(f"{moment}submit {names}{' …' if len(order.objects) > 3 else ''}", (command,))
    fields = msgspec.to_builtins(order)
    words = " ".join(
        "no limit" if value is None else clean(str(value), 60)
        for name, value in fields.items()
        if name != "type" and value != ""
    )
    return WhatIfChange(f"{moment}{fields['type']} {words}", (command,))


def tried(words: str, commands: Sequence[Command]) -> WhatIfChange:
    """Make a change of a suggestion of `gpuconsole why`, described by `words`; submitted objects get manifests."""
    return WhatIfChange(words, tuple(_documented(command) for command in commands))


def _documented(command: Command) -> Command:
    if not isinstance(command, Submit) or command.documents:
        return command
    text = "---\n".join(map(as_yaml, command.objects))
    whole = load_text(text, now=0).objects == command.objects
    return msgspec.structs.replace(command, documents=as_documents(text)) if whole else command


def copy(snapshot: Snapshot, workload: Workload) -> WhatIfChange:
    """Submit the same job again under another name."""
    name = free_name(snapshot, workload)
    wanted = counted(*in_one_unit(wanted_units(snapshot, workload)))
    what = f"{workload.namespace}/{name}, {wanted}, priority {workload.priority}"
    return WhatIfChange(f"submit {what}", (Copy(workload.owner or workload.key, name),))


def free_name(snapshot: Snapshot, workload: Workload) -> str:
    """Return an unused name for a copy of the workload's job."""
    kind, _, rest = workload.owner.partition("/")
    base = (rest.rpartition("/")[2] or workload.name)[:50]
    number = 2
    while _is_taken(snapshot, kind, workload.namespace, f"{base}-copy{number}"):
        number += 1
    return f"{base}-copy{number}"


def _is_taken(snapshot: Snapshot, kind: str, namespace: str, name: str) -> bool:
    return f"{namespace}/{name}" in snapshot.workloads or f"{kind}/{namespace}/{name}" in snapshot.jobs


def stop(workload: Workload) -> WhatIfChange:
    return WhatIfChange(f"stop {called(workload.key)}", (SetActive(workload.key, False),))


def requeue(workload: Workload) -> WhatIfChange:
    return WhatIfChange(f"requeue {called(workload.key)}", (Requeue(workload.key),))


def priority(workload: Workload, value: int) -> WhatIfChange:
    return WhatIfChange(
        f"{called(workload.key)} priority {workload.priority} → {value}", (SetPriority(workload.key, value),)
    )


def lose(node: str) -> WhatIfChange:
    return WhatIfChange(f"fail node {node}", (FailNode(node),))


def drain(node: str) -> WhatIfChange:
    return WhatIfChange(f"drain node {node}", (Drain(node),))


def cordon(node: str) -> WhatIfChange:
    return WhatIfChange(f"cordon node {node}", (Cordon(node, True),))


def hold(queue: str) -> WhatIfChange:
    return WhatIfChange(f"hold queue {queue}", (SetStopPolicy(queue, StopPolicy.HOLD),))


def quota(queue: ClusterQueue, flavor: str, resource: str, nominal: int) -> WhatIfChange:
    """Set another nominal quota; the limits stay."""
    old = queue.quotas().get((flavor, resource), Quota())
    words = f"{queue.name} {flavor} {fmt.resource(resource)} {fmt.amount(resource, old.nominal)}"
    command = SetQuota(queue.name, flavor, resource, nominal)
    return WhatIfChange(f"{words} → {fmt.amount(resource, nominal)}", (command,))


class ChangeCollector(Protocol):
    """The interface of the what-if screen for the functions below, which cannot import it."""

    def add(self, change: WhatIfChange) -> None: ...

    def ask_quota(self, name: str) -> None: ...

    def call_after_refresh(self, callback: Callable[[str], None], argument: str) -> bool: ...


def try_out(app: AppServices, change: WhatIfChange) -> None:
    """Open the what-if screen and add a change."""
    _open(app, lambda screen: screen.add(change))


def try_quota(app: AppServices, cluster_queue: str) -> None:
    """Open the what-if screen and ask for a new quota of a ClusterQueue."""
    _open(app, lambda screen: screen.call_after_refresh(screen.ask_quota, cluster_queue))


def what_if_with_queue(screen: ConsoleScreen, queue: str, refused: str = "") -> None:
    """Ask whether to hold a ClusterQueue or change its quota in a what-if; `refused`: why the quota cannot change."""
    app = screen.console_app
    options = (ChoiceOption("hold", "hold queue", "s"), ChoiceOption("quota", "change quota", "e", refused=refused))
    opens = {"hold": lambda: try_out(app, hold(queue)), "quota": lambda: try_quota(app, queue)}
    screen.dialogs.choose(f"What-if for {queue}", options, lambda kind: opens[kind]())


def _open(app: AppServices, then: Callable[[ChangeCollector], object]) -> None:
    app.go("whatif")
    kind = load("whatif").WhatIfScreen
    screen = next((screen for screen in app.screen_stack if isinstance(screen, kind)), None)
    if screen is not None:
        then(screen)
