"""The configuration, read once at startup: options override the environment, which overrides the file.

The file is `config.yaml` in the user's configuration folder (`GPUCONSOLE_CONFIG` names another). A setting `a.b` is
`GPUCONSOLE_A__B` in the environment.
"""

import re
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from gpuconsole.errors import ConfigError
from gpuconsole.model.text import clean

PREFIX = "GPUCONSOLE_"
WEB_DRIVER = "TEXTUAL_DRIVER"
"""Environment variable by which `gpuconsole web` replaces the terminal of a console by a browser."""


class SimulationSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a simulation starts."""

    seed: int | None = None
    """None = the scenario's."""
    speed: Annotated[float, Meta(ge=1, le=10_000)] = 60.0
    """Simulated seconds per wall-clock second, 1 to 10,000."""
    gpus_per_node: Annotated[int, Meta(ge=1, le=64)] | None = None
    """GPUs per node that is made from flavors; None = the scenario's, else 8."""


class KueueEndpointSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Kueue's metrics endpoint and its credentials."""

    address: str = ""
    """`https://HOST:PORT`, or `service:NAMESPACE/NAME:PORT` through the API server, which passes on no credentials;
    empty = query Prometheus, if there is one."""
    token_file: str = ""
    """A file with a bearer token that may `get` /metrics."""
    ca_file: str = ""
    """CA certificates for its certificate."""
    insecure_skip_tls_verify: bool = False
    """Accept any certificate; Kueue uses a self-signed one by default."""


class TelemetrySettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Sources of GPU metrics of a live cluster."""

    prometheus: str = ""
    """The Prometheus that scrapes the DCGM exporters: `http://HOST:PORT`, `service:NAMESPACE/NAME:PORT` for a service
    behind the API server's proxy, or `find` to discover such a service."""
    dcgm: tuple[str, ...] = ()
    """Addresses of exporters instead; `{node}` in one stands for every node with GPUs."""
    interval: Annotated[float, Meta(ge=1, le=3600)] = 30.0
    """Seconds between two queries."""
    requests: Annotated[float, Meta(ge=1, le=500)] = 50.0
    """Maximum requests per second; separate from the limit for the API server."""
    token_file: str = ""
    """A file with a bearer token."""
    ca_file: str = ""
    """CA certificates for their certificates."""
    headers: Mapping[str, str] = {}
    """Extra HTTP headers, such as X-Scope-OrgID."""
    kueue: KueueEndpointSettings = KueueEndpointSettings()


class LiveSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings for live clusters."""

    requests: Annotated[float, Meta(ge=1, le=200)] = 20.0
    """Maximum average requests per second to the API server."""
    burst: Annotated[int, Meta(ge=1, le=500)] = 40
    """Maximum burst of requests."""
    protected: tuple[str, ...] = ()
    """Patterns of contexts, such as `prod-*`, that are always read-only."""
    telemetry: TelemetrySettings = TelemetrySettings()


class CostSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How costs are allocated."""

    team_label: str = "team"
    """Label of workloads, jobs and pods that names the team; without it, the namespace is the team."""
    project_label: str = "project"
    """Label that names the project."""
    user_label: str = "user"
    """Label that names the user."""
    system_namespaces: tuple[str, ...] = ()
    """Namespaces whose GPUs are a cost of the system and of no team, besides those of Kubernetes, NVIDIA's operators
    and the schedulers, such as `kube-system`."""
    budgets: Mapping[str, Annotated[float, Meta(ge=0)]] = {}
    """Budget of each team, in USD per calendar month."""


class HistorySettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long the history is kept. The age of a simulation's data is that of its session."""

    raw_days: Annotated[float, Meta(gt=0, le=3_650)] = 7
    """Days that events and the changes for time travel are kept."""
    minutes_days: Annotated[float, Meta(gt=0, le=3_650)] = 90
    """Days that time series are kept by the minute."""
    hours_days: Annotated[float, Meta(gt=0, le=36_500)] = 730
    """Days that time series by the hour, costs and the audit log are kept."""
    max_gib: Annotated[float, Meta(gt=0, le=10_000)] = 2
    """Maximum size of a history file in GiB; beyond it the oldest data are deleted before their age."""


class KeySettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The keys of the console."""

    preset: Literal["default", "vim", "emacs"] = "default"
    """`vim` uses no ctrl+letter for what changes something; `emacs` moves with ctrl+n and ctrl+p, and has chords."""
    bindings: Mapping[str, str] = {}
    """Keys of each action id, such as `table.top: "g g, home"`; empty for none. `gpuconsole keys -o json` lists ids."""


class AlertSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Alerting rules, and who is notified of their alerts."""

    rules: str = ""
    """A file of alerting rules in Prometheus' form; empty = no alerts."""
    webhook: str = ""
    """URL that receives notifications in the form of Alertmanager's webhook."""
    webhook_token_file: str = ""
    """A file with a bearer token for the webhook."""
    group_by: tuple[str, ...] = ("alertname",)
    """Labels by which alerts are grouped into notifications."""
    repeat_hours: Annotated[float, Meta(gt=0, le=8_760)] = 4
    """Hours after which a group that still fires is sent again."""
    bell: bool = True
    """Ring the terminal's bell when an alert begins to fire."""
    desktop: bool = False
    """Show a desktop notification by notify-send when an alert begins to fire."""


class ColumnSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A column that a table shows in addition."""

    name: str
    """Its head, which is also its name in filters."""
    path: str
    """Field of the object: `metadata.labels.team`, `spec.priority`."""
    width: Annotated[int, Meta(ge=3, le=80)] = 12
    """In terminal cells."""


class Config(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All settings of the console."""

    theme: str = ""
    """Name of a theme, bundled or from the folder `themes` beside this file; empty = the dark one, or none with
    NO_COLOR."""
    glyphs: Literal["auto", "unicode", "ascii"] = "auto"
    """`ascii` draws glyphs and borders with ASCII characters; `auto` does so unless the locale is UTF-8."""
    motion: Literal["full", "reduced"] = "full"
    """`reduced` draws nothing that moves by itself: scrolling jumps, and nothing fades."""
    keys: KeySettings = KeySettings()
    state_dir: str = ""
    """Folder of the history and the log; empty = the user's state folder."""
    prices: str = ""
    """A price table; empty = the bundled one."""
    log_level: Literal["debug", "info", "warning"] = "info"
    """Level of the log; `debug` adds the fair sharing comparison of each preemption candidate."""
    read_only: bool = False
    """Refuse all changes of the cluster."""
    no_audit: bool = False
    """Allow changes of a live cluster while the audit of changes (in the history) cannot be written."""
    worker: bool = True
    """Compute what-ifs in a separate process."""
    columns: Mapping[str, tuple[ColumnSettings, ...]] = {}
    """Columns that tables show in addition, by table: `workloads` or `nodes`."""
    simulation: SimulationSettings = SimulationSettings()
    live: LiveSettings = LiveSettings()
    cost: CostSettings = CostSettings()
    history: HistorySettings = HistorySettings()
    alerts: AlertSettings = AlertSettings()

    @property
    def state(self) -> Path:
        """The folder of the history and the log."""
        return Path(self.state_dir).expanduser() if self.state_dir else _user_folder("state")

    @property
    def log_file(self) -> Path:
        return self.state / "gpuconsole.log"

    @property
    def history_file(self) -> Path:
        """The history of all simulations."""
        return self.state / "history.db"

    def live_history_file(self, source: str) -> Path:
        """The history of a live cluster, by the name of its source (its context)."""
        name = re.sub(r"[^A-Za-z0-9._-]+", "-", source).strip("-.")[:60]
        if name != source:
            # Two contexts may differ in other characters only.
            name = f"{name}-{zlib.crc32(source.encode(errors='replace')):08x}".strip("-")
        return self.state / f"history-{name}.db"

    @property
    def history_files(self) -> list[Path]:
        """The histories that exist, the most recently written one first."""
        found = [file for file in self.state.glob("history*.db") if file.is_file()] if self.state.is_dir() else []
        return sorted(found, key=lambda file: (-_written(file), file.name))

    @property
    def newest_history_file(self) -> Path:
        """The history that was written last; the one of simulations if there is none."""
        return next(iter(self.history_files), self.history_file)


def _written(file: Path) -> float:
    """When a database was written last; until SQLite's next checkpoint only the file beside it is written."""
    beside = file.with_name(f"{file.name}-wal")
    return max(one.stat().st_mtime for one in (file, beside) if one.exists())


def load(options: Mapping[str, Any], environ: Mapping[str, str]) -> Config:
    """Merge all settings. `options` is nested like the file; None means not given. Raises ConfigError."""
    file = config_file(environ)
    required = bool(environ.get(f"{PREFIX}CONFIG"))
    layers = [_from_file(file, required=required), *_from_environment(environ), _given(options)]
    merged: dict[str, Any] = {}
    for layer in layers:
        _merge(merged, layer)
    return msgspec.convert(merged, Config, strict=False)


def config_file(environ: Mapping[str, str]) -> Path:
    """The configuration file, which may not exist; the user's themes are in the folder `themes` beside it."""
    named = environ.get(f"{PREFIX}CONFIG", "")
    return Path(named).expanduser() if named else _user_folder("config") / "config.yaml"


def setting_place(environ: Mapping[str, str], *path: str) -> str:
    """Where a setting is written, `config.yaml:7`, for an error message; its dotted name if not in the file."""
    import yaml

    file = config_file(environ)
    try:
        node = yaml.compose(file.read_text(), yaml.SafeLoader)
    except (OSError, ValueError, yaml.YAMLError, RecursionError):
        node = None
    line = 0
    for name in path:
        entries = node.value if isinstance(node, yaml.MappingNode) else ()
        key, node = next(((key, value) for key, value in entries if key.value == name), (None, None))
        line = key.start_mark.line + 1 if key is not None else 0
    return f"{file}:{line}" if line else ".".join(path)


def is_utf8(environ: Mapping[str, str]) -> bool:
    """Return whether the locale encodes text as UTF-8; without any locale it is assumed."""
    named = next((environ[name] for name in ("LC_ALL", "LC_CTYPE", "LANG") if environ.get(name)), "UTF-8")
    return "utf8" in named.lower().replace("-", "")


def _user_folder(kind: str) -> Path:
    import platformdirs

    return (
        platformdirs.user_state_path("gpuconsole") if kind == "state" else platformdirs.user_config_path("gpuconsole")
    )


def _from_file(file: Path, *, required: bool) -> dict[str, Any]:
    import yaml

    try:
        content = yaml.safe_load(file.read_text())
    except FileNotFoundError:
        if required:
            raise ConfigError(str(file), "no such file") from None
        return {}
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise ConfigError(str(file), " ".join(str(error).split())) from error
    except RecursionError:
        raise ConfigError(str(file), "nested too deeply") from None
    except (AttributeError, LookupError):
        # PyYAML's constructors, of `!!timestamp x`, `!!bool x`, `!!int ''`.
        raise ConfigError(str(file), "a value does not match its YAML tag; remove the tag (!!…)") from None
    layer = {} if content is None else content
    _check(layer, str(file), strict=True)
    return dict(layer)


def _from_environment(environ: Mapping[str, str]) -> list[dict[str, Any]]:
    """One layer per variable. Variables that name no setting are ignored."""
    layers = []
    for name, value in sorted(environ.items()):
        path = name.removeprefix(PREFIX).lower().split("__")
        if name.startswith(PREFIX) and path[0] in Config.__struct_fields__:
            layer: Any = value
            for part in reversed(path):
                layer = {part: layer}
            _check(layer, name, strict=False)
            layers.append(layer)
    return layers


def _check(layer: object, origin: str, *, strict: bool) -> None:
    try:
        msgspec.convert(layer, Config, strict=strict)
    except msgspec.ValidationError as error:
        raise ConfigError(origin, _plain(str(error))) from error
    except UnicodeEncodeError as error:
        raise ConfigError(origin, f"invalid character (unpaired surrogate): {error.reason}") from error
    for where, text in _texts(layer):
        if "\0" in text:
            raise ConfigError(origin, f"{where}: NUL character in {clean(repr(text), 60)}; remove it")


def _texts(value: object, where: str = "") -> Iterator[tuple[str, str]]:
    """All texts of a setting, with their place; keys of mappings are texts, too."""
    match value:
        case str():
            yield where, value
        case Mapping():
            for name, inner in value.items():
                below = f"{where}.{clean(str(name))}".lstrip(".")
                yield below, str(name)
                yield from _texts(inner, below)
        case list() | tuple():
            for number, inner in enumerate(value):
                yield from _texts(inner, f"{where}[{number}]")
        case _:
            pass


def _plain(text: str) -> str:
    """msgspec's `… - at `$.a.b`` as `a.b: …`."""
    problem, _, where = text.partition(" - at `$.")
    return f"{where.rstrip('`')}: {problem}" if where else problem


def _given(options: Mapping[str, Any]) -> dict[str, Any]:
    given = {name: _given(value) if isinstance(value, Mapping) else value for name, value in options.items()}
    return {name: value for name, value in given.items() if value is not None}


def _merge(into: dict[str, Any], layer: Mapping[str, Any]) -> None:
    for name, value in layer.items():
        if isinstance(value, Mapping):
            _merge(into.setdefault(name, {}), value)
        else:
            into[name] = value
