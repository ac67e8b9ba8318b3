"""The forms of what leaves the process: documents, saved files, the history, options, settings, keys and statuses.

Classes and modules may be renamed: the stored file names none of them. Their tags, fields and values may not.
"""

from collections.abc import Iterable, Iterator
from contextlib import closing
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import Any, TypeVar, Union, get_args

import click
import pytest
from msgspec import Struct

import gpuconsole
from gpuconsole.backends.kube.decode import FORMS as KUBERNETES
from gpuconsole.cli import COMMANDS, INTERRUPTED, cli
from gpuconsole.cli.answering import UNKNOWN
from gpuconsole.cli.lint import LintLine as LintLine
from gpuconsole.cli.preemptions import Body
from gpuconsole.cli.simulate import Detail, EventRecord, QueueRow, WorkloadTotals
from gpuconsole.config import PREFIX, Config
from gpuconsole.errors import ConsoleError
from gpuconsole.insight.cost.rates import MachinePool
from gpuconsole.insight.data_gaps import IdleBound
from gpuconsole.insight.expectations import FORMS as EXPECTATIONS
from gpuconsole.insight.expectations import INCLUDES, POOL
from gpuconsole.insight.forecast.backtest import ForecastDifference
from gpuconsole.insight.forecast.expected_start import CohortPosition
from gpuconsole.insight.forecast.forecast import WorkloadForecast
from gpuconsole.insight.health.antipatterns import AntiPattern
from gpuconsole.insight.health.telemetry import Utilization
from gpuconsole.insight.index.engine_queues import QueueShare
from gpuconsole.insight.index.fragmentation import Usefulness
from gpuconsole.insight.index.queues import Position
from gpuconsole.insight.pending.reasons import PendingReason
from gpuconsole.insight.pending.shortage import QuotaBreakdown
from gpuconsole.insight.pending.why import ConsideredFlavor, Evidence
from gpuconsole.insight.preemption.risk import Risk
from gpuconsole.insight.sharing.fair_shares import ShareReport
from gpuconsole.insight.sharing.ledger import LoanLedger
from gpuconsole.insight.sharing.slots import StartableGangs
from gpuconsole.insight.unblock.changes import Step
from gpuconsole.insight.whatif.engine_comparison import EngineComparison
from gpuconsole.insight.whatif.plan import PlanObstacle, PlanOption
from gpuconsole.insight.whatif.whatif import WhatIf
from gpuconsole.model.commands import Command
from gpuconsole.model.documents.findings import Finding
from gpuconsole.model.events import Event, HistoryEvent, HistoryEventKind, KueueEvent, PreemptionTrace
from gpuconsole.model.gpus.mig_reconfiguration import MigNodeChange
from gpuconsole.model.objects import TABLES, Object
from gpuconsole.model.snapshot import SnapshotFile
from gpuconsole.services.status import ConsoleMode
from gpuconsole.sim.conformance_run import BareForm
from gpuconsole.sim.kernel import Timer
from gpuconsole.sim.policy import SimPolicy
from gpuconsole.sim.scenario_form import COMMANDS as SCENARIO_COMMANDS
from gpuconsole.sim.scenario_form import ChangeForm, ClusterForm, ScenarioForm
from gpuconsole.store import schema
from gpuconsole.ui.actions import ACTIONS, Action
from gpuconsole.ui.theme import COLOURS
from gpuconsole.workers import forked_future, protocol
from tests.frozen.forms import Forms, Walk
from tests.frozen.freezing import check, pretty

ROOTS: dict[str, Any] = {
    "file: snapshot": SnapshotFile,
    "file: snapshot, its policy": SimPolicy | None,
    "file: scenario": ScenarioForm,
    "file: cluster of a scenario": ClusterForm,
    "file: bare scenario": BareForm,
    "file: changes": ChangeForm,
    "file: configuration": Config,
    "history: events": HistoryEvent,
    "history: events.told": tuple[KueueEvent, ...],
    "history: events.choice": PreemptionTrace,
    "history: differences": ForecastDifference,
    "Antipatterns: patterns": AntiPattern,
    "Antipatterns: utilization": Utilization,
    "EngineComparison": EngineComparison,
    "Eta: position": Position,
    "Eta: cohort": CohortPosition,
    "Forecast: forecast": WorkloadForecast,
    "Forecast: differences": ForecastDifference,
    "Ledger": LoanLedger,
    "MigChanges": MigNodeChange,
    "Plan: options": PlanOption,
    "Plan: obstacles": PlanObstacle,
    "Preemptions": Body,
    "Risk": Risk,
    "Shares: kueue": ShareReport,
    "Shares: queues": QueueShare,
    "Slots": Usefulness,
    "Slots: bound": IdleBound,
    "Slots: queues": StartableGangs,
    "WhatIf": WhatIf,
    "Why: arithmetic": QuotaBreakdown,
    "Why: code": PendingReason,
    "Why: considered": ConsideredFlavor,
    "Why: evidence": Evidence,
    "Why: position": Position,
    "Why: steps": tuple[Step, ...],
    "keys": Action,
    "lint: findings": LintLine,
    "simulate: events": Detail,
    "simulate: pools": MachinePool,
    "simulate: queues": QueueRow,
    "simulate: workloads": WorkloadTotals,
    "simulate: a line of jsonl": EventRecord,
    "simulate: types of events": HistoryEventKind,
    "validate: findings": Finding,
    "mode": ConsoleMode,
    "objects": Object,
    "commands": Command,
    "events": Event,
}
"""What leaves the process, or comes back to it from a file: its name for others → its type."""
T = TypeVar("T")
INTERNAL: tuple[Any, ...] = (
    protocol.Request,
    protocol.Reply,
    Union[forked_future._Advance, forked_future._GetStatus],
    Timer,
)
"""What only the processes of one console say to each other, or keep in memory."""


def subclasses(of: type[T]) -> Iterator[type[T]]:
    for one in of.__subclasses__():
        yield one
        yield from subclasses(one)


@pytest.fixture(scope="module")
def package() -> None:
    """All modules are imported, so that all structs are known."""
    for module in walk_packages(gpuconsole.__path__, "gpuconsole."):
        if not module.name.endswith("__main__"):
            import_module(module.name)


def walked(roots: Iterable[Any]) -> tuple[Walk, list[list[str]]]:
    walk = Walk()
    return walk, [walk.lines(root) for root in roots]


def history_schema(folder: Path) -> list[str]:
    """The statements that make a new history, and the names of the migrations that made it."""
    path = folder / "history.db"
    with closing(schema.open_for_writing(path)) as db:
        made = [sql for (sql,) in db.execute("select sql from sqlite_master where sql is not null order by rowid")]
        steps = [name for (name,) in db.execute("select name from _sqlite_migrations order by id")]
    return [*map(str, made), *(f"migration {name}" for name in steps)]


def options(command: click.Command, path: str = "") -> Iterator[str]:
    """A line for each option and argument, also of the commands below."""
    for one in command.params:
        kind = one.type
        value = _values(kind)
        said = {
            "nargs": one.nargs if one.nargs != 1 else None,
            "multiple": one.multiple or None,
            "required": one.required or None,
            "default": _default(one.default),
            "flag": getattr(one, "is_flag", False) or None,
        }
        names = " ".join((*one.opts, *one.secondary_opts))
        rest = ", ".join(f"{name} {what}" for name, what in said.items() if what is not None)
        shown = f"{path} {names}" if one.param_type_name == "option" else f"{path} {one.human_readable_name}"
        yield f"{shown.strip()}: {value}{f' ({rest})' if rest else ''}"
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from options(below, f"{path} {name}".strip())


def _values(kind: click.ParamType[Any]) -> str:
    if isinstance(kind, click.Choice):
        return "|".join(map(str, kind.choices))
    if isinstance(kind, click.IntRange | click.FloatRange):
        return f"{kind.name} {kind.min} to {kind.max}"
    return kind.name


def _default(value: object) -> object:
    return value if isinstance(value, str | int | float | tuple) and value not in ((), "", False) else None


def document(folder: Path) -> dict[str, Any]:
    walk, found = walked(ROOTS.values())
    kubernetes = {"/".join(filter(None, name)): walk.lines(form) for name, form in KUBERNETES.items()}
    forms: Forms = dict(zip(ROOTS, found, strict=True))
    return {
        "forms": forms,
        "tagged": walk.by_tag(),
        "forms that Kubernetes answers with": kubernetes,
        # Objects by their class are counted by `validate`, and named in lists of changes and in the history.
        "kinds of objects": {table: kind.__name__ for kind, table in TABLES.items()},
        # The reason of the events that say what a command came to, in the history and in saved files.
        "commands as events name them": {str(one.__struct_config__.tag): one.__name__ for one in get_args(Command)},
        "commands of scenarios": list(SCENARIO_COMMANDS),
        "expectations of drills": [INCLUDES, *EXPECTATIONS, *(f"pools.{name}" for name in POOL)],
        "roles of themes": list(COLOURS),
        "history": history_schema(folder),
        "exit statuses": {
            "nothing can be said": UNKNOWN,
            "interrupted": INTERRUPTED,
            "errors": ConsoleError.status,
            "errors of any kind": sorted({one.status for one in subclasses(ConsoleError)}),
        },
        "keys": {one.id: "  ".join((*one.keys, *(f":{name}" for name in one.aliases))) for one in ACTIONS},
        "commands": list(COMMANDS),
        "options": list(options(cli)),
        "environment": PREFIX,
        "files": [Config().history_file.name, Config().log_file.name],
    }


def test_what_leaves_the_process_keeps_its_form(package: None, tmp_path: Path) -> None:
    check("wire_forms.json", pretty(document(tmp_path)))


def test_every_struct_with_a_tag_is_frozen_or_internal(package: None) -> None:
    """A new struct with a tag belongs to ROOTS, by what it is part of, if it leaves the process."""
    known, _ = walked([*ROOTS.values(), *INTERNAL])
    structs = {one for one in subclasses(Struct) if one.__module__.startswith("gpuconsole.")}
    assert {one for one in structs if one.__struct_config__.tag is not None} - set(known.tagged) == set()
