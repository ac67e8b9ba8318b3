"""Parts of the what-if screen: dialogs that ask for a change, and the file for `gpuconsole whatif -f`."""

from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import yaml

from gpuconsole.errors import ConsoleError
from gpuconsole.model.clock import Span
from gpuconsole.model.commands import Command
from gpuconsole.model.documents.yaml_json import FormError, read_yaml
from gpuconsole.model.manifests import Severity
from gpuconsole.model.objects import Object
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.text import clean
from gpuconsole.model.workloads import Workload
from gpuconsole.sim.scenario_form import Changes, ScenarioError, read_changes, to_change_list
from gpuconsole.ui import format as fmt
from gpuconsole.ui import whatif_changes
from gpuconsole.ui.names import called
from gpuconsole.ui.screens.background import run_in_background
from gpuconsole.ui.screens.base import ConsoleScreen, in_browser
from gpuconsole.ui.whatif_changes import WhatIfChange
from gpuconsole.ui.widgets.dialogs import ChoiceOption, PromptField, whole_number
from gpuconsole.ui.yaml_view import as_documents

LARGEST = 1_000_000
"""Maximum size of a manifest in bytes."""
OTHERS = {
    "set-weight": "queue: {queue}, weight: 2",
    "set-cohort": "queue: {queue}, cohort: shared",
    "set-preemption": "clusterQueue: {queue}, reclaimWithinCohort: Any",
    "set-taint": "node: {node}, key: spare, effect: NoSchedule",
    "add-nodes": "like: {node}, count: 1",
    "divide": "node: {node}, config: all-balanced",
    "interrupt-spot": "node: {node}",
    "restore-node": "node: {node}",
    "cordon": "node: {node}, cordoned: true",
    "reconfigure": "fairSharing: true",
}
"""Changes that are typed as text: type of the Command → template of its fields, which the operator edits."""


class ChangeDialogs:
    """Asks for the changes that the what-if screen is to simulate."""

    def __init__(self, screen: ConsoleScreen, add: Callable[[WhatIfChange], object]) -> None:
        """`add` adds a change to the list."""
        self._screen = screen
        self._dialogs = screen.dialogs
        self._add = add

    @property
    def _snapshot(self) -> Snapshot:
        return self._screen.snapshot

    def ask_change(self) -> None:
        """Ask which kind of change to add, and for its details."""
        options = (
            ChoiceOption("form", "job from the form", "f", (("opens the submit form", "dim"),)),
            ChoiceOption("file", "from a file", "y", (("manifests, or a list of changes", "dim"),)),
            ChoiceOption("copy", "resubmit workload", "c", (("submits a copy", "dim"),)),
            ChoiceOption("stop", "stop workload", "s"),
            ChoiceOption("priority", "change priority", "p"),
            ChoiceOption("quota", "change quota", "q", refused="" if self._snapshot.cluster_queues else "no queues"),
            ChoiceOption("hold", "hold queue", "h", refused="" if self._snapshot.cluster_queues else "no queues"),
            ChoiceOption("lose", "fail node", "k", refused="" if self._snapshot.nodes else "no nodes"),
            ChoiceOption("drain", "drain node", "d", refused="" if self._snapshot.nodes else "no nodes"),
            ChoiceOption("other", "other change", "o", (("weight, cohort, taint, nodes, feature gate …", "dim"),)),
        )
        self._dialogs.choose("Add a change", options, self._ask_more)

    def _ask_more(self, kind: str) -> None:
        match kind:
            case "form":
                self._screen.console_app.go("submit")
            case "file":
                self._dialogs.prompt(
                    PromptField("YAML file", lines=("Manifests to submit, or a list of changes (steps).",)), self._read
                )
            case "copy":
                self._ask_workload(
                    "Resubmit workload", lambda found: self._add(whatif_changes.copy(self._snapshot, found))
                )
            case "stop":
                self._ask_workload("Stop workload", lambda found: self._add(whatif_changes.stop(found)))
            case "priority":
                self._ask_workload("Change the priority of workload", self._ask_priority)
            case "quota":
                self._ask_name("Change the quota of ClusterQueue", list(self._snapshot.cluster_queues), self.ask_quota)
            case "hold":
                self._ask_name(
                    "Hold ClusterQueue",
                    list(self._snapshot.cluster_queues),
                    lambda name: self._add(whatif_changes.hold(name)),
                )
            case "lose":
                self._ask_name(
                    "Fail node", list(self._snapshot.nodes), lambda name: self._add(whatif_changes.lose(name))
                )
            case "other":
                self._dialogs.choose("Add a change", [ChoiceOption(name, name) for name in OTHERS], self._ask_command)
            case "drain":
                self._ask_name(
                    "Drain node", list(self._snapshot.nodes), lambda name: self._add(whatif_changes.drain(name))
                )

    def _ask_command(self, kind: str) -> None:
        """Ask for a command in the form of a scenario step."""
        objs = {
            "queue": next(iter(self._snapshot.cluster_queues), ""),
            "node": next(iter(self._snapshot.nodes), ""),
        }
        text = f"{{type: {kind}, {OTHERS[kind].format(**objs)}}}"
        lines = ("A command, as in a scenario step.",)
        self._dialogs.prompt(
            PromptField("Change", text, lines, self._wrong_command), lambda text: self._add_all(self._read_steps(text))
        )

    def _wrong_command(self, text: str) -> str:
        try:
            self._read_steps(text)
        except FormError as error:
            return clean(error.problem.problem, 200)
        except ScenarioError as error:
            return clean(str(error).removeprefix("change: steps[0].commands[0]").lstrip(".: "), 200)
        return ""

    def _read_steps(self, text: str) -> Changes:
        return read_changes([{"steps": [{"commands": [read_yaml(text).value]}]}], "change", self._snapshot.time)

    def _add_all(self, changes: Changes) -> None:
        for command in changes.commands:
            self._add(whatif_changes.command_change(command))

    def _ask_name(self, title: str, names: list[str], then: Callable[[str], object]) -> None:
        self._dialogs.choose(title, [ChoiceOption(name, name) for name in names], then)

    def _ask_workload(self, title: str, then: Callable[[Workload], object]) -> None:
        def check(text: str) -> str:
            return "" if self._find(text) is not None else "no workload has this name, or several have"

        wanted = PromptField(title, lines=("Its name, or namespace/name if several have it.",), check=check)
        self._dialogs.prompt(wanted, lambda text: self._found(text, then))

    def _found(self, text: str, then: Callable[[Workload], object]) -> None:
        workload = self._find(text)
        if workload is not None:
            then(workload)

    def _find(self, text: str) -> Workload | None:
        exact = self._snapshot.workloads.get(text)
        if exact is not None:
            return exact
        same = [
            workload
            for workload in self._snapshot.workloads.all()
            if text and text in (workload.name, workload.owner.rpartition("/")[2])
        ]
        return same[0] if len(same) == 1 else None

    def _ask_priority(self, workload: Workload) -> None:
        """Ask for a new priority of the workload, and add the change."""
        wanted = PromptField(
            f"Priority of {workload.key}", str(workload.priority), check=whole_number(-(2**31), 2**31 - 1)
        )
        self._dialogs.prompt(
            wanted, lambda text: self._add(whatif_changes.priority(workload, int(text.replace(",", ""))))
        )

    def ask_quota(self, name: str) -> None:
        """Ask for a new nominal quota of the ClusterQueue `name`, and add the change."""
        queue = self._snapshot.cluster_queues.get(name)
        if queue is None:
            return
        options = [
            ChoiceOption(
                f"{flavor} {resource}", f"{flavor} {fmt.resource(resource)}", detail=fmt.amount(resource, q.nominal)
            )
            for (flavor, resource), q in queue.quotas().items()
        ]

        def ask_amount(pair: str) -> None:
            flavor, _, resource = pair.partition(" ")
            nominal = queue.quotas()[flavor, resource].nominal
            wanted = PromptField(f"Nominal quota of {name}, {pair}", str(nominal), check=whole_number(0, 2**62))
            self._dialogs.prompt(
                wanted,
                lambda text: self._add(whatif_changes.quota(queue, flavor, resource, int(text.replace(",", "")))),
            )

        self._dialogs.choose(f"Quota of {name}", options, ask_amount)

    def _read(self, path: str) -> None:
        run_in_background(self._screen, lambda: self._read_file(path), lambda changes: [self._add(c) for c in changes])

    def _read_file(self, path: str) -> list[WhatIfChange]:
        """Return the changes in a file. Raises ConsoleError if there are none."""
        if in_browser():
            raise ConsoleError("not in a browser: it would use files of the server")
        try:
            with Path(path).expanduser().open(encoding="utf-8") as file:
                text = file.read(LARGEST)
            loaded = self._screen.console.check(text)
        except (OSError, UnicodeDecodeError) as error:
            raise ConsoleError(f"{path}: {error}") from error
        errors = [finding for finding in loaded.findings if finding.severity is Severity.ERROR]
        if errors or not (loaded.objects or loaded.scenario):
            problem = f"line {errors[0].line}: {errors[0].problem}" if errors else "no objects in the file"
            raise ConsoleError(f"{path}: {problem}")
        if not loaded.scenario:
            what = f"{Path(path).name}, {_count(len(loaded.objects))}"
            return [whatif_changes.submit(loaded.objects, what, as_documents(text))]
        now, names = self._snapshot.time, self._screen.console.generated_names
        try:
            changes = read_changes(loaded.scenario, Path(path).name, now, objects=loaded.objects, names=names)
        except ScenarioError as error:
            raise ConsoleError(str(error).splitlines()[0]) from error
        return list(map(whatif_changes.command_change, changes.commands))


def _count(objects: int) -> str:
    return f"{objects} object{'s' if objects != 1 else ''}"


def is_there(path: str) -> str:
    """Check an output path: return an error if the file exists, as it is not overwritten; empty if it does not."""
    try:
        there = Path(path).expanduser().exists()
    except (OSError, RuntimeError, ValueError):
        # Writing reports the error.
        return ""
    return f"{path} already exists; choose another name" if there else ""


def free_file(stem: str) -> str:
    """An unused file name in the current folder."""
    return next(name for name in _names(stem) if not is_there(name))


def _names(stem: str) -> Iterator[str]:
    yield f"{stem}.yaml"
    yield from (f"{stem}-{number}.yaml" for number in count(2))


def write_changes(commands: Sequence[Command], horizon: Span, path: str) -> str:
    """Write the changes to a new file; return an error message, or an empty text on success."""
    try:
        document = to_change_list(commands, horizon, _manifest)
    except LookupError as error:
        return str(error.args[0])
    text = yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=10_000)
    try:
        with Path(path).expanduser().open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        return f"{path}: {error.strerror}"
    except RuntimeError as error:
        # `~nobody/…`
        return f"{path}: {error}"
    return ""


def _manifest(obj: Object) -> dict[str, Any]:
    """Raises LookupError: objects that the console generates have no manifest."""
    raise LookupError(f"{called(obj.key)} has no manifest that can be written; submit it from the form or a file")
