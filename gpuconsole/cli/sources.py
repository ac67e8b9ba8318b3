"""Opens a simulation from manifests, a scenario, a saved Snapshot, a live cluster or a bundled fixture.

`open_simulation` is the main entry. Problems of scenarios become findings with file and line, as those of manifests;
`saved_in` reads a saved Snapshot and explains what is wrong with an invalid one.
"""

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from gpuconsole import assets
from gpuconsole.cli.options import DEFAULT, OpenRequest, as_line, resolve
from gpuconsole.cli.policy import with_kueue
from gpuconsole.config import Config
from gpuconsole.errors import InputError, SourceError, UsageError
from gpuconsole.insight.expectations import ExpectError, read_expectation
from gpuconsole.insight.health.engines import engines
from gpuconsole.insight.tables import counted
from gpuconsole.model.autoscaling import CatalogueError, InstanceTypeCatalogue, NodePool
from gpuconsole.model.autoscaling import load as load_catalogue
from gpuconsole.model.clock import Time, parse_time
from gpuconsole.model.cluster import Node
from gpuconsole.model.documents.findings import Path as FieldPath
from gpuconsole.model.documents.reader import Reader
from gpuconsole.model.manifests import Finding, LoadedManifests, Severity, load
from gpuconsole.model.manifests.loading import admitting_all
from gpuconsole.model.objects import Object, insane_values
from gpuconsole.model.prices import Prices, PricesError
from gpuconsole.model.prices import load as load_prices
from gpuconsole.model.snapshot import FORMAT, KUEUES, Snapshot, SnapshotFile, Visibility, decode
from gpuconsole.model.state import ClusterState
from gpuconsole.model.text import clean
from gpuconsole.scheduling.kai.config import KaiPolicy
from gpuconsole.scheduling.kube.profile import PlacementPolicy
from gpuconsole.scheduling.volcano.config import VolcanoPolicy
from gpuconsole.services.status import ConsoleMode, ConsoleStatus
from gpuconsole.services.time_travel import RecordedCluster
from gpuconsole.sim import run_times
from gpuconsole.sim.engine import Simulation, policy_of_snapshot
from gpuconsole.sim.policy import FixedCapacity, SimPolicy
from gpuconsole.sim.scenario import START as SCENARIO_START
from gpuconsole.sim.scenario import Scenario, build_simulation, load_scenario, provisions_by_default
from gpuconsole.sim.scenario_form import ScenarioError

_PLACE = re.compile(r"([A-Za-z][\w.\[\]]*): (.+)")
_UNKNOWN = re.compile(r"(?:unknown key )?'([^']+)'")
LineOf = Callable[[FieldPath], int]
"""Function that returns the line number of a field of a document."""
_KEY = re.compile(r"\[(\d+)\]|([^.\[\]]+)")
FILES = "files"
"""Field of a scenario with the files that hold more objects."""


def with_scenarios(loaded: LoadedManifests) -> LoadedManifests:
    """Return the loaded manifests with the objects of their scenarios, or with findings about invalid scenarios."""
    objects, findings = list(loaded.objects), list(loaded.findings)
    for document, origin, line_of in zip(loaded.scenario, loaded.origins, loaded.lines, strict=True):
        try:
            scenario = load_scenario([document], origin, folder=Path(origin).parent)
        except ScenarioError as error:
            problems = scenario_findings(error, origin, line_of)
        else:
            objects += scenario.objects
            problems = wrong_expectations(scenario, origin, line_of)
        findings += unreported(problems, loaded)
    return replace(loaded, objects=tuple(objects), findings=tuple(findings))


def unreported(problems: Iterable[Finding], loaded: LoadedManifests) -> list[Finding]:
    """Return the problems of a scenario without those that were found when its files were loaded."""
    known = {(finding.file, finding.line, finding.path) for finding in loaded.findings}
    return [
        problem
        for problem in problems
        if (problem.path != FILES or not loaded.has_errors) and (problem.file, problem.line, problem.path) not in known
    ]


def placed(error: ScenarioError, origin: str, lines: Sequence[LineOf]) -> str:
    """Format the problems of a scenario or list of changes, one per line, with their positions in the file.

    If several documents were read, it is unknown which one has the problems, and positions are left out.
    """
    if len(lines) != 1:
        return str(error)
    return "\n".join(map(as_line, scenario_findings(error, origin, lines[0])))


def scenario_findings(error: ScenarioError, origin: str, line_of: LineOf) -> list[Finding]:
    """Return the problems of a scenario as findings with their lines."""
    texts = (text.removeprefix(f"{origin}: ") for text in str(error).splitlines())
    return sorted((_finding(text, origin, line_of) for text in texts), key=lambda finding: finding.line)


def wrong_expectations(scenario: Scenario, origin: str, line_of: LineOf) -> list[Finding]:
    """Return a finding for each expectation of a scenario that can never be checked. Simulates nothing."""
    return [_finding(text, origin, line_of) for text in _wrong_expectations([step.expect for step in scenario.steps])]


def misread_expectations(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield a text for each expectation that can never be checked, of a scenario that is not parsed yet."""
    steps = document.get("steps")
    found = [step.get("expect") if isinstance(step, dict) else () for step in steps] if isinstance(steps, list) else []
    yield from _wrong_expectations([expect if isinstance(expect, list) else () for expect in found])


def _wrong_expectations(steps: Iterable[Iterable[Any]]) -> Iterator[str]:
    for number, expect in enumerate(steps):
        for position, item in enumerate(expect):
            try:
                read_expectation(item)
            except ExpectError as error:
                yield f"steps[{number}].expect[{position}]: {error}"


def _finding(text: str, origin: str, line_of: LineOf) -> Finding:
    """A finding from `path: problem; remedy`, with its line; for an unknown key, the line of that key."""
    placed = _PLACE.fullmatch(text)
    path, said = (placed[1], placed[2]) if placed else ("", text)
    unknown = _UNKNOWN.match(said)
    problem, _, remedy = said.partition("; ")
    return Finding(
        severity=Severity.ERROR,
        file=origin,
        line=line_of((*_scenario_keys(path), *([unknown[1]] if unknown else []))),
        document=1,
        path=path,
        object="",
        problem=problem,
        remedy=remedy or "see docs/reference/scenarios.md and the bundled scenarios",
        code="scenario",
    )


def _scenario_keys(path: str) -> FieldPath:
    return tuple(int(number) if number else name for number, name in _KEY.findall(path))


REMEDY = "create one with `gpuconsole snapshot save`; open manifests and scenarios without --snapshot"
SHOWN = 5
"""Maximum number of keys that the error names of a document that is not a snapshot."""
_PLACED = re.compile(r"(?P<problem>.*) - at `\$\.?(?P<path>.*)`")
_OBJECT = re.compile(r"objects\[(?P<number>\d+)\]\.?(?P<path>.*)")


def saved_in(file: Path) -> tuple[SnapshotFile, SimPolicy | None]:
    """Read a saved Snapshot, and the policy if it was saved from a simulation, else None. Raises SourceError."""
    try:
        data = file.read_bytes()
    except OSError as error:
        raise SourceError(str(file), error.strerror or str(error)) from error
    saved = _decoded(file, data)
    wrong = next(insane_values(saved.objects), None)
    if wrong is not None:
        raise SourceError(str(file), wrong)
    try:
        return saved, policy_of_snapshot(saved)
    except UnicodeDecodeError as error:
        raise _not_utf_8(file, data) from error
    except msgspec.DecodeError as error:
        raise SourceError(str(file), f"policy: {error}") from error


def _decoded(file: Path, data: bytes) -> SnapshotFile:
    try:
        return decode(data)
    except msgspec.ValidationError as error:
        raise SourceError(str(file), _wrong(_document(data), str(error))) from error
    except UnicodeDecodeError as error:
        raise _not_utf_8(file, data) from error
    except (msgspec.DecodeError, RecursionError) as error:
        why = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise SourceError(str(file), f"not a snapshot: {why}; {REMEDY}") from error


def _not_utf_8(file: Path, data: bytes) -> SourceError:
    """The position in a file that is not UTF-8."""
    try:
        data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        said = f"not valid UTF-8: byte {data[error.start]:#04x} at position {error.start}; {REMEDY}"
        return SourceError(str(file), said, line)
    return SourceError(str(file), f"its strings are not valid UTF-8; {REMEDY}")


def _document(data: bytes) -> Any:
    """The JSON document; None if what follows its first wrong value is not JSON."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _wrong(document: Any, problem: str) -> str:
    """Explain why a document is no Snapshot: it has other keys, or a field is invalid (`problem`, by msgspec)."""
    if not isinstance(document, dict):
        return f"not a snapshot, but {_kind_of(document)}; {REMEDY}"
    if document.get("format", FORMAT) != FORMAT:
        return problem
    if not ("objects" in document and "time" in document):
        return f"not a snapshot: `time` and `objects` are required, {_keys(document)}; {REMEDY}"
    found = _PLACED.fullmatch(problem)
    if found is None:
        return problem
    text = found["problem"]
    place = _OBJECT.fullmatch(found["path"])
    where = found["path"] if place is None else f"{_name(document['objects'], int(place['number']))} {place['path']}"
    return f"{where.rstrip()}: {text[:1].lower()}{text[1:]}; save the cluster again with `gpuconsole snapshot save`"


def _kind_of(value: Any) -> str:
    match value:
        case list():
            return f"a list of {counted(len(value), 'value')}"
        case str():
            return "a string"
        case None:
            return "null"
        case _:
            return "a number" if type(value) is not bool else "true or false"


def _keys(document: dict[str, Any]) -> str:
    """The keys that a document has instead."""
    if not document:
        return "found nothing"
    shown = ", ".join(islice((clean(key) for key in document), SHOWN))
    more = len(document) - SHOWN
    return f"found {shown}{f' and {more} more' if more > 0 else ''}"


def _name(objects: Any, number: int) -> str:
    """The name of the object with this number, by its own fields."""
    obj = objects[number] if isinstance(objects, list) and number < len(objects) else None
    fields = (obj.get(key) for key in ("type", "namespace", "name")) if isinstance(obj, dict) else ()
    return "/".join(clean(part) for part in fields if isinstance(part, str) and part) or f"objects[{number}]"


def with_overrides(saved: SnapshotFile, request: OpenRequest) -> SnapshotFile:
    """Return the saved Snapshot without assumptions about Kueue that the request's Configuration or gates replace."""
    return replace(saved, seen=_seen_with_overrides(saved.seen, request))


def _seen_with_overrides(seen: Visibility, request: OpenRequest) -> Visibility:
    if request.kueue_config is None and not request.feature_gates:
        return seen
    return replace(seen, assumed=tuple(text for text in seen.assumed if not text.startswith(KUEUES)))


START: Time = parse_time(SCENARIO_START)
"""Start time of a simulation of plain manifests: always the same Monday morning."""


class FindingsError(InputError):
    """The input has errors, one per line of the message."""


class OpenedSimulation(Struct, frozen=True, kw_only=True):
    """A simulation that is ready to run, with its status line and notices for the user."""

    simulation: Simulation
    about: ConsoleStatus
    notices: tuple[str, ...] = ()
    found: Snapshot | None = None
    """A live or saved cluster as it was read, before any simulated decision; None for a simulated cluster."""
    staged: bool = False
    """Whether the cluster was saved from a simulation, so that its time is not wall-clock time."""
    scenario: Scenario | None = None
    """The scenario of the simulation; None for a live or saved cluster."""


def open_simulation(request: OpenRequest, settings: Config | None = None) -> OpenedSimulation:
    """Open the requested cluster as a simulation; `settings` limit how fast a live cluster is read.

    Raises UsageError, FindingsError where the input has errors, or ClusterError.
    """
    if not request.live and (request.context or request.kubeconfig or request.namespace):
        raise UsageError("--context, --kubeconfig and --namespace need --live")
    asked = [bool(request.files), request.live, request.snapshot is not None]
    if request.recorded is not None:
        if any(asked):
            raise UsageError("`gpuconsole at` reads a recorded cluster; omit FILES, --live and --snapshot")
        return _from_recorded(request.recorded, request)
    if sum(asked) > 1:
        raise UsageError("use only one of FILES, --live and --snapshot")
    if request.live:
        return _from_cluster(request, settings)
    if request.snapshot is not None:
        if request.nodes is not None or request.admit_all_namespaces:
            raise UsageError("--nodes and --admit-all-namespaces apply to FILES only, not to --snapshot")
        return _from_snapshot(request.snapshot, request)
    files = resolve(request.files or (DEFAULT,))
    scenario, loaded = _read(files, request, price_table(request))
    if loaded.origins and (wrong := wrong_expectations(scenario, loaded.origins[0], loaded.lines[0])):
        raise FindingsError("\n".join(map(as_line, wrong)))
    if request.nodes is not None:
        scenario = _with_nodes(scenario, request.nodes)
    return _opened(
        build_simulation(scenario, seed=request.seed, gpus_per_node=request.gpus_per_node), scenario, loaded, request
    )


def read_scenario(files: Sequence[str], request: OpenRequest) -> Scenario:
    """Read files as one scenario, for the requested Kueue configuration; a scenario of plain manifests has no steps.

    Raises FindingsError, and what `with_kueue` raises.
    """
    scenario, _ = read_drill(files, request)
    return scenario


def read_drill(files: Sequence[str], request: OpenRequest) -> tuple[Scenario, LineOf]:
    """Read files as `read_scenario` does; also return a function that finds the line of a field of the scenario."""
    scenario, loaded = _read(files, request, Prices())
    return scenario, loaded.lines[0] if loaded.lines else lambda path: 1


def price_table(request: OpenRequest) -> Prices:
    """Return the requested price table. Raises SourceError, or FindingsError with every wrong line."""
    if request.prices is None:
        return Prices()
    try:
        return load_prices(request.prices.read_text(), str(request.prices))
    except (OSError, UnicodeDecodeError) as error:
        raise SourceError(str(request.prices), str(error)) from error
    except PricesError as error:
        raise FindingsError(str(error)) from error


def catalogue_for(
    request: OpenRequest, scenarios: Sequence[Mapping[str, Any]], objects: Iterable[Object] = ()
) -> InstanceTypeCatalogue:
    """Return the instance-type catalogue: the requested one, else the bundled one if a scenario or NodePool needs it.

    Raises SourceError, or FindingsError with every wrong line.
    """
    if request.catalogue is None and not scenarios and not any(isinstance(obj, NodePool) for obj in objects):
        return InstanceTypeCatalogue()
    file = request.catalogue or assets.catalogue()
    try:
        return load_catalogue(file.read_text(), str(file))
    except (OSError, UnicodeDecodeError) as error:
        raise SourceError(str(file), str(error)) from error
    except CatalogueError as error:
        raise FindingsError(str(error)) from error


def _read(files: Sequence[str], request: OpenRequest, prices: Prices) -> tuple[Scenario, LoadedManifests]:
    loaded = _loaded(files, admit_all_namespaces=request.admit_all_namespaces)
    origin = next(iter(loaded.origins), ", ".join(files))
    folder = Path(origin).parent if Path(origin).is_file() else None
    try:
        scenario = load_scenario(
            loaded.scenario,
            origin,
            objects=loaded.objects,
            folder=folder,
            prices=prices,
            catalogue=catalogue_for(request, loaded.scenario, loaded.objects),
        )
    except ScenarioError as error:
        raise FindingsError(placed(error, origin, loaded.lines)) from error
    if request.admit_all_namespaces:
        scenario = replace(scenario, objects=tuple(map(admitting_all, scenario.objects)))
    return replace(scenario, policy=_policy(scenario.policy, request, loaded.configurations, scenario.objects)), loaded


def _policy(
    policy: SimPolicy, request: OpenRequest, configurations: Sequence[Reader] = (), objects: Iterable[Object] = ()
) -> SimPolicy:
    return replace(with_kueue(policy, request, configurations, objects), traces_preemptions=request.traces_preemptions)


def _with_nodes(scenario: Scenario, file: Path) -> Scenario:
    """The scenario on the nodes of a file, instead of its own."""
    nodes = [obj for obj in _loaded([str(file)]).objects if isinstance(obj, Node)]
    if not nodes:
        raise SourceError(str(file), "it has no Node manifests")
    others = (obj for obj in scenario.objects if not isinstance(obj, Node))
    return replace(scenario, objects=(*others, *nodes))


def _loaded(files: Sequence[str], *, admit_all_namespaces: bool = False) -> LoadedManifests:
    stdin = sys.stdin.read() if "-" in files else None
    loaded = load(files, stdin=stdin, now=START, admit_all_namespaces=admit_all_namespaces)
    errors = [finding for finding in loaded.findings if finding.severity is Severity.ERROR]
    if errors:
        raise FindingsError("\n".join(map(as_line, errors)))
    return loaded


def _opened(
    simulation: Simulation, scenario: Scenario, loaded: LoadedManifests, request: OpenRequest
) -> OpenedSimulation:
    warnings = sum(finding.severity is Severity.WARNING for finding in loaded.findings)
    names = " ".join(request.files) or DEFAULT
    notices = [f"{counted(warnings, 'warning')}; run gpuconsole validate {names} for details"] if warnings else []
    if not simulation.snapshot().nodes and isinstance(simulation.policy.capacity, FixedCapacity):
        notices.append("no Nodes, and no quota to make nodes from: no pod can be scheduled")
    if provisions_by_default(next(iter(loaded.scenario), {}), scenario.objects):
        notices.append(_about_provisioning(scenario, request))
    source = scenario.name or ", ".join(Path(file).name for file in request.files) or DEFAULT
    about = status_of(simulation, source)
    return OpenedSimulation(simulation=simulation, about=about, notices=tuple(notices), scenario=scenario)


def _about_provisioning(scenario: Scenario, request: OpenRequest) -> str:
    """The notice that Karpenter provisions nodes because there is a NodePool."""
    pools = counted(sum(isinstance(obj, NodePool) for obj in scenario.objects), "NodePool")
    known = request.catalogue
    catalogue = f"the instance-type catalogue {known.name};" if known else "the built-in instance-type catalogue;"
    other = "" if known else " --catalogue selects another one,"
    override = "engine.capacity in a scenario overrides this"
    return f"Karpenter provisions nodes for {pools} from {catalogue}{other} {override}"


def _from_cluster(request: OpenRequest, settings: Config | None) -> OpenedSimulation:
    """Simulate from the current state of a live cluster. Raises UsageError, ClusterError."""
    from gpuconsole.cli.live import connected, look

    with connected(request, settings) as opened:
        snapshot = look(opened.backend)
        policy = _policy(replace(opened.backend.policy, prices=price_table(request)), request)
    simulation = Simulation.from_snapshot(snapshot, policy=policy, seed=request.seed or 0)
    about = status_of(simulation, opened.about.source)
    notices = tuple(dict.fromkeys((*opened.notices, *snapshot.seen.warnings)))
    return OpenedSimulation(simulation=simulation, about=about, notices=notices, found=snapshot)


def _from_snapshot(file: Path, request: OpenRequest) -> OpenedSimulation:
    """Simulate from a saved snapshot, with its saved policy. Raises SourceError."""
    saved, known = saved_in(file)
    snapshot = ClusterState.from_file(with_overrides(saved, request)).freeze()
    seed = request.seed if request.seed is not None else saved.seed or 0
    return _continued(snapshot, known, request, seed=seed, source=file.name, staged=saved.staged)


def _from_recorded(recorded: RecordedCluster, request: OpenRequest) -> OpenedSimulation:
    """Simulate from a recorded cluster at an earlier time, with its settings at that time. Raises SourceError."""
    state = ClusterState.of(recorded.snapshot, recorded.snapshot.recent)
    state.seen = _seen_with_overrides(state.seen, request)
    source = recorded.recording.source
    return _continued(
        state.freeze(), recorded.policy, request, seed=request.seed or 0, source=source, staged=recorded.staged
    )


def _continued(
    snapshot: Snapshot, known: SimPolicy | None, request: OpenRequest, *, seed: int, source: str, staged: bool
) -> OpenedSimulation:
    """Simulate from a Snapshot with the settings that are `known`, as far as the request does not replace them."""
    policy = known or SimPolicy(prices=price_table(request), latencies=run_times.DEFAULT_LATENCIES)
    if request.own_prices:
        policy = replace(policy, prices=price_table(request))
    if request.catalogue is not None:
        policy = _selling(policy, catalogue_for(request, ()))
    simulation = Simulation.from_snapshot(snapshot, policy=_policy(policy, request), seed=seed)
    about = status_of(simulation, source)
    return OpenedSimulation(
        simulation=simulation, about=about, notices=snapshot.seen.warnings, found=snapshot, staged=staged
    )


def _about_placement(placement: PlacementPolicy | VolcanoPolicy | KaiPolicy) -> list[str]:
    if not isinstance(placement, PlacementPolicy):
        return []
    return [f"gangs {'on' if placement.gangs else 'off'}", placement.score]


def _selling(policy: SimPolicy, catalogue: InstanceTypeCatalogue) -> SimPolicy:
    """The policy with another instance-type catalogue, if it provisions nodes."""
    capacity = policy.capacity
    return (
        policy
        if isinstance(capacity, FixedCapacity)
        else replace(policy, capacity=replace(capacity, catalogue=catalogue))
    )


def status_of(simulation: Simulation, source: str) -> ConsoleStatus:
    """Return the header's status of a simulation: its source, its engines and their policy."""
    policy = simulation.policy
    texts = _about_placement(policy.placement)
    if policy.kueue is not None:
        texts.append(f"fair sharing {'on' if policy.kueue.fair_sharing else 'off'}")
    return ConsoleStatus(
        mode=ConsoleMode.SIM,
        source=clean(source),
        engines=engines(policy),
        policy=" · ".join(reversed(texts)),
        nodes_synthesised=any(node.synthesised for node in simulation.snapshot().nodes.all()),
    )
