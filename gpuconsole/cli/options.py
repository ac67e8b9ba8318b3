"""Options that commands share: the cluster to open (`FILES… | --live | --snapshot FILE`) and how to build it.

Also the names of bundled fixtures, so that `gpuconsole simulate three-nodes` needs no path, and the text form of
findings about files.
"""

import math
import os
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec
from msgspec import Struct
from msgspec.structs import replace

from gpuconsole import assets
from gpuconsole.config import Config, CostSettings, load
from gpuconsole.errors import UsageError
from gpuconsole.model.documents.findings import Finding
from gpuconsole.model.text import clean

if TYPE_CHECKING:
    from gpuconsole.insight.cost.allocation import CostLabels
    from gpuconsole.insight.cost.report import Budget
    from gpuconsole.services.time_travel import RecordedCluster
    from gpuconsole.store.queries import Recording

Function = TypeVar("Function", bound=Callable[..., Any])


class OpenRequest(Struct, frozen=True, kw_only=True):
    """The cluster that the command line asks to open; `clustered` defines the options. None or empty = not given."""

    files: tuple[str, ...] = ()
    live: bool = False
    snapshot: Path | None = None
    seed: int | None = None
    nodes: Path | None = None
    gpus_per_node: int | None = None
    admit_all_namespaces: bool = False
    prices: Path | None = None
    own_prices: bool = False
    """Whether the user chose the price table, which is otherwise the bundled one."""
    kueue_config: Path | None = None
    feature_gates: str = ""
    catalogue: Path | None = None
    context: str | None = None
    kubeconfig: str | None = None
    namespace: tuple[str, ...] = ()
    insecure_skip_tls_verify: bool = False
    prometheus: str = ""
    dcgm: tuple[str, ...] = ()
    kueue_metrics: str = ""
    traces_preemptions: bool = False
    """Whether the simulation records how victims were chosen; set by the command, not by an option."""
    recorded: "RecordedCluster | None" = None
    """A cluster at an earlier time, of `gpuconsole at`, in place of the others."""


_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


def configured(request: OpenRequest, **options: Any) -> tuple[OpenRequest, Config]:
    """Return the request with settings from the environment and the configuration file, and all settings.

    `options` are settings from the command line by their names in `Config`; they take precedence. Raises ConfigError.
    """
    options["prices"] = None if request.prices is None else str(request.prices)
    simulation = {"seed": request.seed, "gpus_per_node": request.gpus_per_node, "speed": options.pop("speed", None)}
    settings = load({**options, "simulation": simulation}, os.environ)
    chosen = settings.simulation
    prices = Path(settings.prices).expanduser() if settings.prices else assets.price_table()
    shaped = replace(request, seed=chosen.seed, gpus_per_node=chosen.gpus_per_node, prices=prices)
    return replace(shaped, own_prices=bool(settings.prices)), settings


def policed(function: Function) -> Function:
    """Decorator that adds the options for the simulated Kueue (--kueue-config, --feature-gates) to a command."""
    decorators = (
        click.option("--kueue-config", type=_FILE, help="Kueue's Configuration (config.kueue.x-k8s.io)."),
        click.option("--feature-gates", default="", metavar="A=true,B=false", help="Kueue's feature gates."),
    )
    command: Any = function
    for decorator in reversed(decorators):
        command = decorator(command)
    return command  # type: ignore[no-any-return]


def clustered(function: Function) -> Function:
    """Decorator that adds the options that select and build a cluster; the command receives them as one `request`."""
    decorators = (
        click.argument("files", nargs=-1),
        click.option("--live", is_flag=True, help="Use the cluster of the current kubeconfig context."),
        click.option("--context", help="Context of the kubeconfig (with --live)."),
        click.option("--kubeconfig", metavar="FILE", help="Path of the kubeconfig (with --live)."),
        click.option("--namespace", "-n", multiple=True, help="Read this namespace only (--live). May be repeated."),
        click.option(
            "--insecure-skip-tls-verify",
            is_flag=True,
            help="Accept a kubeconfig that skips TLS verification (with --live).",
        ),
        click.option(
            "--prometheus", metavar="URL", default="", help="Prometheus with DCGM metrics (with --live), or `find`."
        ),
        click.option("--dcgm", metavar="URL", multiple=True, help="DCGM exporters, as http://{node}:9400."),
        click.option("--kueue-metrics", metavar="URL", default="", help="Kueue's metrics endpoint (with --live)."),
        click.option("--snapshot", type=_FILE, help="A saved snapshot."),
        click.option("--seed", type=int, help="Random seed."),
        click.option("--nodes", type=_FILE, help="Node manifests (default: nodes are made from the flavors)."),
        click.option("--gpus-per-node", type=click.IntRange(1, 64), help="GPUs per node that is made from flavors."),
        click.option("--admit-all-namespaces", is_flag=True, help="Treat every namespaceSelector as {}."),
        click.option("--catalogue", type=_FILE, help="Instance-type catalogue (default: built in)."),
        click.option("--prices", type=_FILE, help="Price table (default: built in)."),
    )

    @wraps(function)
    def gathered(**options: Any) -> Any:
        request = OpenRequest(**{name: options.pop(name) for name in OpenRequest.__struct_fields__ if name in options})
        return function(request=replace(request, recorded=click.get_current_context().obj), **options)

    command: Any = policed(gathered)
    for decorator in reversed(decorators):
        command = decorator(command)
    return command  # type: ignore[no-any-return]


DEFAULT = "default"
"""Name of the fixture that `gpuconsole` opens without arguments."""
FOLDERS = ("scenarios", "drills", "clusters")
"""Subfolders of `fixtures` whose files the user can name without a path."""


def resolve(files: Sequence[str]) -> list[str]:
    """Replace names of bundled fixtures by their paths; an existing path takes precedence. Raises UsageError."""
    resolved = []
    for file in files:
        there = file == "-" or (file and Path(file).exists())
        bundled = None if there else fixtures().get(file)
        if bundled is None and not there:
            known = ", ".join(sorted(fixtures()))
            raise UsageError(f"{file or 'an empty name'}: no such file, folder or bundled fixture ({known})")
        resolved.append(file if bundled is None else str(bundled))
    return resolved


def fixtures() -> dict[str, Path]:
    """Name → path of every bundled fixture."""
    root = assets.folder("fixtures")
    return {path.stem: path for folder in FOLDERS for path in sorted((root / folder).glob("*.yaml"))}


def as_line(finding: Finding) -> str:
    """Format a finding about a file in one line, as compilers do: position, severity, problem, fix."""
    subject = " ".join(part for part in (finding.object, finding.path) if part)
    where = f"{finding.file}:{finding.line}: {finding.severity}:"
    return clean(
        " ".join([where, f"{subject}:" if subject else "", f"{finding.problem}; {finding.remedy}"]).replace("  ", " ")
    )


def cost_labels(settings: CostSettings) -> "CostLabels":
    """Return the labels and namespaces by which costs are allocated."""
    from gpuconsole.insight.cost.allocation import SYSTEM_NAMESPACES, CostLabels

    return CostLabels(
        team=settings.team_label,
        project=settings.project_label,
        user=settings.user_label,
        system_namespaces=SYSTEM_NAMESPACES | frozenset(settings.system_namespaces),
    )


def _budget(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> "tuple[Budget, ...]":
    from gpuconsole.insight.cost.report import Budget

    found: list[Budget] = []
    for text in values:
        team, equals, amount = text.rpartition("=")
        try:
            usd = float(amount)
        except ValueError:
            usd = math.nan
        if not equals or not team or not 0 <= usd < math.inf:
            raise click.BadParameter(f"{text!r} is not TEAM=USD, such as research=12000", ctx, param)
        found.append(Budget(team=team, usd_per_month=usd))
    return tuple(found)


BUDGETS = click.option(
    "--budget",
    "budgets",
    multiple=True,
    callback=_budget,
    metavar="TEAM=USD",
    help="Monthly budget of a team. May be repeated.",
)
"""The --budget option, which gives the command a tuple of Budgets."""


def budgets_of(given: Sequence["Budget"], settings: CostSettings) -> Sequence["Budget"]:
    """Return the budgets of the command line, else those of the configuration."""
    from gpuconsole.insight.cost.report import Budget

    return given or [Budget(team=team, usd_per_month=usd) for team, usd in settings.budgets.items()]


def print_json(body: Any) -> None:
    """Print a document, whose values msgspec can encode, as indented JSON."""
    click.echo(msgspec.json.format(msgspec.json.encode(body), indent=2).decode())


def recording_numbered(recordings: "Sequence[Recording]", number: int) -> "Recording":
    """Return the recording with a number. Raises UsageError that names those there are."""
    found = next((one for one in recordings if one.id == number), None)
    if found is None:
        known = ", ".join(f"{one.id} ({one.source})" for one in recordings[-8:]) or "none"
        raise UsageError(f"there is no recording {number}; the newest are {known}")
    return found
