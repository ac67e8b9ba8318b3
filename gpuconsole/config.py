"""One Config, read once at the start: options win over the environment, that over the file.

The file is `config.yaml` in the user's configuration folder (`GPUCONSOLE_CONFIG` names another). A setting `a.b` is
`GPUCONSOLE_A__B` in the environment.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from gpuconsole.errors import ConfigError
from gpuconsole.model.text import clean

PREFIX = "GPUCONSOLE_"


class Simulation(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a simulation starts."""

    seed: int | None = None
    """None = what the scenario says."""
    speed: Annotated[float, Meta(ge=1, le=10_000)] = 60.0
    """Virtual seconds a second, 1 to 10,000."""
    gpus_per_node: Annotated[int, Meta(ge=1, le=64)] | None = None
    """GPUs of a node that is made because the input has none; None = what the scenario says, else 8."""


class KueueEndpoint(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where Kueue's manager tells its metrics, and what it wants to see before."""

    address: str = ""
    """`https://HOST:PORT`, or `service:NAMESPACE/NAME:PORT` through the API server, which passes no credentials on;
    empty = a Prometheus is asked, if there is one."""
    token_file: str = ""
    """A file with a bearer token of somebody who may `get` /metrics."""
    ca_file: str = ""
    """Certificates of who may have signed its own."""
    insecure_skip_tls_verify: bool = False
    """Take any certificate: Kueue makes one for itself unless it is given another."""


class Telemetry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the GPUs of a live cluster are measured."""

    prometheus: str = ""
    """The address of a Prometheus that scrapes DCGM's exporters: `http://HOST:PORT`, `service:NAMESPACE/NAME:PORT` for
    a service that the API server passes requests on to, or `find` to look for such a service."""
    dcgm: tuple[str, ...] = ()
    """Addresses of exporters instead; `{node}` in one stands for every node with GPUs."""
    interval: Annotated[float, Meta(ge=1, le=3600)] = 30.0
    """Seconds between two looks."""
    requests: Annotated[float, Meta(ge=1, le=500)] = 50.0
    """Requests a second that they get at most; the API server's budget is another one."""
    token_file: str = ""
    """A file with a bearer token."""
    ca_file: str = ""
    """Certificates of who may have signed theirs."""
    headers: Mapping[str, str] = {}
    """Headers that they want, such as X-Scope-OrgID."""
    kueue: KueueEndpoint = KueueEndpoint()


class Live(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a live cluster is looked at."""

    requests: Annotated[float, Meta(ge=1, le=200)] = 20.0
    """Requests a second that its API server gets from us at most, on average."""
    burst: Annotated[int, Meta(ge=1, le=500)] = 40
    """Requests at once, after a rest."""
    protected: tuple[str, ...] = ()
    """Patterns of contexts, such as `prod-*`: nothing can be changed there, whatever the options say."""
    telemetry: Telemetry = Telemetry()


class Config(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All settings."""

    theme: str = ""
    """Name of a theme; empty = the dark one, or none with NO_COLOR."""
    state_dir: str = ""
    """Folder of the history and the log; empty = the user's state folder."""
    prices: str = ""
    """A price table; empty = the one that comes along."""
    log_level: Literal["debug", "info", "warning"] = "info"
    """What the log keeps; `debug` also tells what fair sharing weighed before it spared or took a workload."""
    read_only: bool = False
    no_audit: bool = False
    """Let a live cluster be changed also while the audit of changes (part of the history) cannot be written."""
    worker: bool = True
    """Compute what-ifs in a process of their own."""
    simulation: Simulation = Simulation()
    live: Live = Live()

    @property
    def state(self) -> Path:
        """The folder of the history and the log."""
        return Path(self.state_dir).expanduser() if self.state_dir else _user_folder("state")

    @property
    def log_file(self) -> Path:
        return self.state / "gpuconsole.log"

    @property
    def history_file(self) -> Path:
        return self.state / "history.db"


def load(options: Mapping[str, Any], environ: Mapping[str, str]) -> Config:
    """Put the settings together. `options` is nested like the file; None means not given. Raises ConfigError."""
    named = environ.get(f"{PREFIX}CONFIG", "")
    file = Path(named).expanduser() if named else _user_folder("config") / "config.yaml"
    layers = [_from_file(file, required=bool(named)), *_from_environment(environ), _given(options)]
    merged: dict[str, Any] = {}
    for layer in layers:
        _merge(merged, layer)
    return msgspec.convert(merged, Config, strict=False)


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
            raise ConfigError(str(file), "there is no such file") from None
        return {}
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise ConfigError(str(file), " ".join(str(error).split())) from error
    except RecursionError:
        raise ConfigError(str(file), "it is nested too deeply") from None
    except (AttributeError, LookupError):
        # PyYAML's constructors, of `!!timestamp x`, `!!bool x`, `!!int ''`.
        raise ConfigError(str(file), "a value does not fit its tag; remove the tag (!!…)") from None
    layer = {} if content is None else content
    _check(layer, str(file), strict=True)
    return dict(layer)


def _from_environment(environ: Mapping[str, str]) -> list[dict[str, Any]]:
    """One layer a variable. Variables that name no setting are other people's."""
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
        raise ConfigError(origin, f"half of a surrogate pair stands for a character: {error.reason}") from error
    for where, text in _texts(layer):
        if "\0" in text:
            raise ConfigError(origin, f"{where}: there is a NUL character in {clean(repr(text), 60)}; remove it")


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
