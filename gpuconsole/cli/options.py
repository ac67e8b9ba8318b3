"""Sources, written alike by every command: `FILES… | --live | --snapshot FILE`, and what shapes the cluster."""

import os
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click
from msgspec import Struct
from msgspec.structs import replace

from gpuconsole import assets
from gpuconsole.config import Config, load

Function = TypeVar("Function", bound=Callable[..., Any])


class Request(Struct, frozen=True, kw_only=True):
    """What to open, as it was asked for. None = not said."""

    files: tuple[str, ...] = ()
    live: bool = False
    snapshot: Path | None = None
    seed: int | None = None
    nodes: Path | None = None
    gpus_per_node: int | None = None
    admit_all_namespaces: bool = False
    prices: Path | None = None
    own_prices: bool = False
    """The price table was chosen, it is not the one that comes along."""
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
    tells_choices: bool = False
    """Whether the simulation tells how victims were chosen; whoever asks for the cluster says it, no option does."""


_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


def configured(request: Request, **options: Any) -> tuple[Request, Config]:
    """Fill in what the environment and the configuration file say. Raises ConfigError."""
    options["prices"] = None if request.prices is None else str(request.prices)
    simulation = {"seed": request.seed, "gpus_per_node": request.gpus_per_node, "speed": options.pop("speed", None)}
    settings = load({**options, "simulation": simulation}, os.environ)
    chosen = settings.simulation
    prices = Path(settings.prices).expanduser() if settings.prices else assets.price_table()
    shaped = replace(request, seed=chosen.seed, gpus_per_node=chosen.gpus_per_node, prices=prices)
    return replace(shaped, own_prices=bool(settings.prices)), settings


def policed(function: Function) -> Function:
    """Give a command the options that say which Kueue is simulated."""
    decorators = (
        click.option("--kueue-config", type=_FILE, help="Kueue's Configuration (config.kueue.x-k8s.io), as it runs."),
        click.option("--feature-gates", default="", metavar="A=true,B=false", help="Kueue's feature gates."),
    )
    command: Any = function
    for decorator in reversed(decorators):
        command = decorator(command)
    return command  # type: ignore[no-any-return]


def clustered(function: Function) -> Function:
    """Give a command the options that say which cluster; it takes them as one `request`."""
    decorators = (
        click.argument("files", nargs=-1),
        click.option("--live", is_flag=True, help="The cluster of the current kubeconfig context."),
        click.option("--context", help="Another context of the kubeconfig (with --live)."),
        click.option("--kubeconfig", metavar="FILE", help="Another kubeconfig (with --live)."),
        click.option("--namespace", "-n", multiple=True, help="Look there only (with --live); several are allowed."),
        click.option(
            "--insecure-skip-tls-verify",
            is_flag=True,
            help="Accept that the kubeconfig leaves the server's certificate unchecked (with --live).",
        ),
        click.option(
            "--prometheus", metavar="URL", default="", help="Where DCGM's metrics are (with --live), or `find`."
        ),
        click.option("--dcgm", metavar="URL", multiple=True, help="DCGM's exporters themselves: http://{node}:9400."),
        click.option(
            "--kueue-metrics", metavar="URL", default="", help="Where Kueue's manager tells its metrics (with --live)."
        ),
        click.option("--snapshot", type=_FILE, help="A Snapshot that was saved."),
        click.option("--seed", type=int, help="What chance starts from."),
        click.option("--nodes", type=_FILE, help="Manifests of nodes, instead of nodes made from the flavors."),
        click.option("--gpus-per-node", type=click.IntRange(1, 64), help="Of nodes that are made from flavors."),
        click.option("--admit-all-namespaces", is_flag=True, help="As if every namespaceSelector were {}."),
        click.option("--catalogue", type=_FILE, help="Machines for sale, for scenarios that bring none."),
        click.option("--prices", type=_FILE, help="A price table, for scenarios that bring none."),
    )

    @wraps(function)
    def gathered(**options: Any) -> Any:
        request = Request(**{name: options.pop(name) for name in Request.__struct_fields__ if name in options})
        return function(request=request, **options)

    command: Any = policed(gathered)
    for decorator in reversed(decorators):
        command = decorator(command)
    return command  # type: ignore[no-any-return]
