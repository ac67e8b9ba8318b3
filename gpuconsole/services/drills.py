"""Reads drills: scenarios with steps, bundled or from other files."""

from collections.abc import Sequence
from pathlib import Path

import yaml
from msgspec import Struct
from msgspec.structs import replace

from gpuconsole import assets
from gpuconsole.errors import SourceError
from gpuconsole.model.autoscaling import CatalogueError
from gpuconsole.model.autoscaling import load as load_catalogue
from gpuconsole.model.clock import parse_time
from gpuconsole.model.manifests import Severity, load
from gpuconsole.model.text import clean
from gpuconsole.sim.scenario import START, Scenario, load_scenario
from gpuconsole.sim.scenario_form import ScenarioError

NO_STEPS = "it has no steps, so there is nothing to predict"


class DrillFile(Struct, frozen=True):
    """A drill in the list of those that can be opened: name, description and file."""

    name: str
    description: str
    steps: int
    """Number of steps."""
    path: str


def library() -> Sequence[DrillFile]:
    """The bundled drills by name. Reads their files; raises ConsoleError if the installation lacks them."""
    return [_listed(path) for path in _bundled()]


def open_drill(named: str) -> Scenario:
    """Read a drill by path or by the name of a bundled one; its run records why each victim was chosen.

    Raises SourceError with the first error.
    """
    path = named
    try:
        path = _path_of(named)
        loaded = load([path], now=parse_time(START))
        wrong = next((f for f in loaded.findings if f.severity is Severity.ERROR), None)
        if wrong is not None:
            raise SourceError(path, f"line {wrong.line}: {wrong.problem}")
        if loaded.configurations:
            raise SourceError(path, "it has a separate Kueue Configuration; open it with gpuconsole drill play")
        scenario = load_scenario(
            loaded.scenario,
            path,
            objects=loaded.objects,
            folder=Path(path).parent,
            catalogue=load_catalogue(assets.catalogue().read_text(), str(assets.catalogue())),
        )
    except ScenarioError as error:
        raise SourceError(path, str(error).splitlines()[0].removeprefix(f"{path}: ")) from error
    except (OSError, RuntimeError, UnicodeDecodeError, CatalogueError) as error:
        raise SourceError(path, str(error)) from error
    return playable(scenario, path)


def _bundled() -> Sequence[Path]:
    return sorted((assets.folder("fixtures") / "drills").glob("*.yaml"))


def _path_of(named: str) -> str:
    """The path of a drill; an existing path takes precedence over a bundled name."""
    file = Path(named).expanduser()
    if not file.exists():
        return next((str(path) for path in _bundled() if path.stem == named), str(file))
    return str(file)


def playable(scenario: Scenario, path: str) -> Scenario:
    """The scenario as a drill: its run records why each victim was chosen. Raises SourceError for one without steps."""
    if not scenario.steps:
        raise SourceError(path, NO_STEPS)
    name = scenario.name or Path(path).stem
    return replace(scenario, name=name, policy=replace(scenario.policy, traces_preemptions=True))


def _listed(path: Path) -> DrillFile:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    document = yaml.load(path.read_text(encoding="utf-8"), Loader=loader)
    name, description = (clean(str(document.get(key) or ""), 200) for key in ("name", "description"))
    return DrillFile(name or path.stem, description, len(document.get("steps") or ()), str(path))
