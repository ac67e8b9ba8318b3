"""Generate the reference pages in docs/reference from the code: `make docs`, or `python -m tests.tools.reference`.

A page is written by hand, except for its regions between `<!-- generated: NAME -->` and `<!-- end -->`. The generator
replaces their contents by tables of commands, keys, settings and the keys of files. `tests/test_docs.py` compares the
committed pages with what it writes. The meaning of a key comes from `reference_texts.py`, otherwise from the docstring
of its field; a key without either is an error.
"""

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import click
import msgspec
from msgspec import NODEFAULT, Meta, Struct, UnsetType, structs

from gpuconsole.cli import COMMANDS
from gpuconsole.cli.options import clustered
from gpuconsole.config import PREFIX, Config
from gpuconsole.insight.expectations import FORMS, INCLUDES, LISTS, POOL
from gpuconsole.insight.pending.reasons import PendingReason
from gpuconsole.model import commands
from gpuconsole.model.autoscaling import InstanceType
from gpuconsole.model.prices import Prices
from gpuconsole.sim.policy import AutoscalerPolicy, ScalingGroup, SpotPolicy
from gpuconsole.sim.run_times import ArrivalStream, JobSize, Latencies, LatencyDistribution, LogNormal
from gpuconsole.sim.scenario_form import COMMANDS as STEP_COMMANDS
from gpuconsole.sim.scenario_form import (
    AutoscalerForm,
    CapacityForm,
    ChangeForm,
    ClusterForm,
    EngineForm,
    GroupForm,
    LatenciesForm,
    LinksForm,
    MigForm,
    PlacementForm,
    QuantilesForm,
    ReplicasForm,
    ResourceReplicasForm,
    ScenarioAdmissionFairSharing,
    ScenarioForm,
    ShapeForm,
    SharingForm,
    SpotForm,
    SpreadForm,
    StepForm,
    StreamForm,
    UsageForm,
    to_camel_case,
)
from gpuconsole.ui.actions import ACTIONS, Action, Scope
from gpuconsole.ui.actions.keys import spell
from tests.tools.reference_texts import COMMAND_EFFECTS, EXPECTATIONS, MEANINGS

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "reference"
WORKER_CLUSTER = "in-cluster"
"""The command of a step that contains other commands."""

_REGION = re.compile(r"(<!-- generated: (?P<name>[\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)
_SECTIONS = {
    CapacityForm: "capacity",
    LinksForm: "links",
    SpotForm: "spot",
    GroupForm: "node-groups",
    PlacementForm: "placement",
    UsageForm: "past-usage",
    EngineForm: "engine",
    SharingForm: "gpu-sharing",
    MigForm: "mig",
    ReplicasForm: "replicas",
    ResourceReplicasForm: "replicas",
    StepForm: "steps",
    StreamForm: "arrivals",
    ShapeForm: "job-sizes",
    SpreadForm: "distributions",
    QuantilesForm: "latencies",
    LatenciesForm: "latencies",
    AutoscalerForm: "provisioningrequests",
    ClusterForm: "worker-clusters",
    ScenarioAdmissionFairSharing: "admission-fair-sharing",
}
"""Struct → anchor of its section in scenarios.md."""
_LABELS = {
    "gpu-sharing": "GPU sharing",
    "mig": "MIG",
    "provisioningrequests": "ProvisioningRequests",
    "distributions": "distribution",
    "latencies": "quantiles",
}
"""Anchor → text of its links, where it is another one."""
_DURATIONS = {
    "wake_up_batch",
    "keep_finished",
    "horizon",
    "grace",
    "usage_half_life_time",
    "p5",
    "p50",
    "p90",
    "p99",
    "max",
}
"""Fields that hold a duration, although nothing in the form says so."""
_DESCRIBED_BY = {
    StreamForm: ArrivalStream,
    ShapeForm: JobSize,
    SpreadForm: LogNormal,
    SpotForm: SpotPolicy,
    GroupForm: ScalingGroup,
    CapacityForm: AutoscalerPolicy,
    QuantilesForm: LatencyDistribution,
    LatenciesForm: Latencies,
}
"""Struct of a file → the struct that it is turned into, whose docstrings describe the same fields."""


class MissingTextError(ValueError):
    """A reference page cannot be generated; the text says what is missing."""


def generated(page: Path) -> str:
    """Return a page with the regions that the code determines today."""

    def region(found: re.Match[str]) -> str:
        return f"{found[1]}\n{REGIONS[found['name']]().strip()}\n\n{found[3]}"

    return _REGION.sub(region, page.read_text(encoding="utf-8"))


def pages() -> list[Path]:
    """The pages with generated regions."""
    return [page for page in sorted(FOLDER.glob("*.md")) if _REGION.search(page.read_text(encoding="utf-8"))]


def main() -> None:
    """Write the pages, and name those that changed."""
    for page in pages():
        text = generated(page)
        if text != page.read_text(encoding="utf-8"):
            page.write_text(text, encoding="utf-8")
            print(f"docs/reference/{page.name}")


# Markdown


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def code(text: str) -> str:
    return f"`{text}`" if text else ""


# Commands


def command_reference() -> str:
    """All commands with arguments and options; the options that select a cluster are in a section of their own."""
    sections = [_command(name, command) for name, command in _commands()]
    shared = (
        "## Options that select the cluster\n\n"
        "Most commands take FILES (manifests, folders, a scenario, `-` for stdin, or the name of a bundled fixture), "
        "`--live` or `--snapshot`, and these options:\n\n" + _options(_cluster_options())
    )
    return "\n\n".join([*sections, shared])


def _commands() -> Iterator[tuple[str, click.Command]]:
    for name in COMMANDS:
        command: click.Command = import_module(f"gpuconsole.cli.{name}").command
        if isinstance(command, click.Group):
            yield from ((f"{name} {below}", one) for below, one in command.commands.items())
        else:
            yield name, command


def _command(name: str, command: click.Command) -> str:
    arguments = [_argument(one) for one in command.params if isinstance(one, click.Argument)]
    options = [one for one in command.params if isinstance(one, click.Option)]
    shared = {one.name for one in _cluster_options()}
    selects = shared <= {one.name for one in options}
    own = [one for one in options if not (selects and one.name in shared)]
    parts = [
        f"## {name}",
        _prose(command.help or ""),
        "```text\n" + " ".join(["gpuconsole", name, "[OPTIONS]" if options else "", *arguments]).strip() + "\n```",
    ]
    if own:
        parts.append(_options(own))
    if selects:
        link = "[options that select the cluster](#options-that-select-the-cluster)"
        parts.append(f"{'Also takes' if own else 'Takes'} the {link}.")
    return "\n\n".join(parts)


def _argument(argument: click.Argument) -> str:
    name = argument.make_metavar(click.Context(click.Command("x")))
    return name.replace("]...", "] …").replace("...", " …").replace(" …", "…")


def _prose(text: str) -> str:
    paragraphs = inspect.cleandoc(text).replace("\b\n", "").split("\n\n")
    return "\n\n".join(_escaped(" ".join(paragraph.split())) for paragraph in paragraphs)


def _escaped(text: str) -> str:
    """Text in which `<` and `*` outside code are not Markdown."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if part.startswith("`") else re.sub(r"([<*_])", r"\\\1", part) for part in parts)


@cache
def _cluster_options() -> tuple[click.Option, ...]:
    def nothing() -> None:
        """Stand for a command."""

    found = click.command()(clustered(nothing))
    return tuple(one for one in found.params if isinstance(one, click.Option))


def _options(options: Iterable[click.Option]) -> str:
    rows = [(_spelled(one), _escaped(_help(one))) for one in options if not one.hidden]
    return table(("Option", "Meaning"), rows)


def _spelled(option: click.Option) -> str:
    names = ", ".join(code(name) for name in [*option.opts, *option.secondary_opts])
    if option.is_flag or option.count:
        return names
    if isinstance(option.type, click.Choice):
        return f"{names} {', '.join(code(str(choice)) for choice in option.type.choices)}"
    if isinstance(option.type, click.IntRange | click.FloatRange):
        return f"{names} {code('NUMBER')}, {option.type.min:,} to {option.type.max:,}"
    return f"{names} {code(option.make_metavar(click.Context(click.Command('x'))))}"


def _help(option: click.Option) -> str:
    text = option.help or _HELPLESS.get(option.name or "", "")
    if not text:
        raise MissingTextError(f"{option.opts[0]} has no help; give it one, or add it to _HELPLESS")
    default = option.default
    # Click's own mark for "no default" is not a value, and neither is a flag's False or an empty text.
    if (
        option.show_default
        and default is not None
        and (isinstance(default, str | int | float) and default is not False)
    ):
        text += f" Default: {code(str(default))}."
    return text


_HELPLESS = {"output": "Output as text or as a JSON document."}
"""Options whose names say enough on the command line."""


# Keys


def key_reference() -> str:
    """All actions with their keys, by scope."""
    return "\n\n".join(f"## {scope.value}\n\n{_actions(scope)}" for scope in Scope if _of(scope))


def _of(scope: Scope) -> list[Action]:
    return [action for action in ACTIONS if action.scope is scope]


def _actions(scope: Scope) -> str:
    head = ("Keys", "Action", "What it does", "At the `:` prompt")
    return table(head, [(_keys(one), one.label, _action_help(one), _prompt(one)) for one in _of(scope)])


def _keys(action: Action) -> str:
    return " ".join(f"``{spell(key)}``" if "`" not in spell(key) else f"`` {spell(key)} ``" for key in action.keys)


def _action_help(action: Action) -> str:
    notes = [note for note, is_so in (("asks first", action.dangerous), ("changes", action.changes)) if is_so]
    return _escaped(action.help) + (f" ({', '.join(notes)})" if notes else "")


def _prompt(action: Action) -> str:
    argument = f" {action.argument}" if action.argument else ""
    return " ".join(code(f":{alias}{argument if number == 0 else ''}") for number, alias in enumerate(action.aliases))


# Settings


def configuration_reference() -> str:
    """All settings, with their environment variables."""
    return table(("Setting", "Environment variable", "Values", "Default", "Meaning"), _settings(Config, ()))


def _settings(struct: type[Struct], path: tuple[str, ...]) -> Iterator[Sequence[str]]:
    for one in structs.fields(struct):
        below = (*path, one.name)
        if isinstance(one.type, type) and issubclass(one.type, Struct):
            yield from _settings(one.type, below)
        else:
            # A list or a mapping cannot be written in an environment variable.
            is_single = get_origin(one.type) in (None, Annotated, Literal, Union, UnionType)
            variable = code(PREFIX + "__".join(below).upper()) if is_single else ""
            yield code(".".join(below)), variable, values(one.type), _default(one), meaning(struct, one.name)


# Files


def fields_table(struct: type[Struct]) -> str:
    """The keys of a part of a file."""
    rows = [
        (code(one.encode_name), _values_of(one), _default(one), meaning(struct, one.name))
        for one in structs.fields(struct)
    ]
    return table(("Key", "Values", "Default", "Meaning"), rows)


def _values_of(one: structs.FieldInfo) -> str:
    words = values(one.type)
    is_duration = one.name in _DURATIONS or re.fullmatch(r"`\d+(ms|s|m|h)`", _default(one)) is not None
    if is_duration or "#distributions" in words or "#latencies" in words:
        return words.replace("text", "duration")
    return words


def values(kind: Any) -> str:
    """The values that a key takes, in words."""
    if get_origin(kind) is Annotated:
        kind, *marks = get_args(kind)
        return values(kind) + "".join(_range(mark) for mark in marks if isinstance(mark, Meta))
    if isinstance(kind, type) and kind in _WORDS:
        return _WORDS[kind]
    if isinstance(kind, type) and issubclass(kind, Struct):
        section = _SECTIONS.get(kind, "")
        return f"[{_LABELS.get(section, section.replace('-', ' '))}](#{section})" if section else "mapping"
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        known = [part for part in parts if part not in (NoneType, UnsetType)]
        return ", ".join(dict.fromkeys(values(part) for part in known))
    if origin is Literal:
        return ", ".join(code(str(part)) for part in _literals(parts))
    if origin is tuple:
        return f"list of {_PLURALS.get(values(parts[0]), values(parts[0]))}"
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return "mapping"
    if kind is Any:
        return "any"
    if isinstance(kind, type) and hasattr(kind, "__members__"):
        return ", ".join(code(str(one.value)) for one in kind)  # type: ignore[attr-defined]
    raise MissingTextError(f"the type {kind!r} has no words; add them to reference.values")


_WORDS: Mapping[type, str] = {str: "text", int: "integer", float: "number", bool: "`true`, `false`"}
_PLURALS = {"text": "texts", "number": "numbers", "mapping": "objects"}


def _literals(parts: Iterable[Any]) -> Iterator[Any]:
    for part in parts:
        if get_origin(part) is Literal:
            yield from _literals(get_args(part))
        else:
            yield part


def _range(mark: Meta) -> str:
    return f", {mark.ge:,} to {mark.le:,}" if mark.ge is not None and mark.le is not None else ""


def _default(one: structs.FieldInfo) -> str:
    if one.required:
        return "required"
    default = one.default if one.default is not NODEFAULT else one.default_factory()
    if isinstance(default, SpreadForm):
        return code(default.median) if not default.sigma else f"median {code(default.median)}, sigma {default.sigma}"
    if isinstance(default, Struct) or (isinstance(default, tuple) and default and isinstance(default[0], Struct)):
        return ""
    if default is None or default is msgspec.UNSET or default in ("", (), {}, []):
        return ""
    if isinstance(default, float) and default.is_integer():
        return code(str(int(default)))
    return code(msgspec.json.encode(default).decode().strip('"'))


def meaning(struct: type[Struct], name: str) -> str:
    """What a field means: from the texts of the generator, otherwise from the field's docstring."""
    text = MEANINGS.get((struct.__name__, name)) or attribute_docs(struct).get(name)
    other = _DESCRIBED_BY.get(struct)
    if text is None and other is not None:
        text = attribute_docs(other).get(name)
    if text is None:
        raise MissingTextError(
            f"{struct.__name__}.{name} has no meaning: add a docstring below it, or a text to reference_texts.MEANINGS"
        )
    return " ".join(text.split())


@cache
def attribute_docs(struct: type[Struct]) -> Mapping[str, str]:
    """Docstrings of the fields of a class, by name."""
    (found,) = ast.parse(textwrap.dedent(inspect.getsource(struct))).body
    assert isinstance(found, ast.ClassDef)
    docs = {}
    for before, after in zip(found.body, found.body[1:], strict=False):
        if not isinstance(before, ast.AnnAssign) or not isinstance(before.target, ast.Name):
            continue
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) and isinstance(after.value.value, str):
            docs[before.target.id] = inspect.cleandoc(after.value.value)
    return docs


def step_commands() -> str:
    """The commands of a step, with fields and effect."""
    by_type = {str(one.__struct_config__.tag): one for one in _command_structs()}
    rows = []
    for name in STEP_COMMANDS:
        if name == WORKER_CLUSTER:
            rows.append((code(name), "`cluster`, [`commands`, `create`]", COMMAND_EFFECTS[name]))
            continue
        struct = by_type[name]
        effect = COMMAND_EFFECTS.get(name) or " ".join((inspect.getdoc(struct) or "").split())
        rows.append((code(name), _command_fields(struct), effect))
    return table(("Command", "Fields", "Effect"), rows)


def _command_structs() -> list[type[Struct]]:
    found = vars(commands).values()
    return [one for one in found if isinstance(one, type) and issubclass(one, Struct) and one is not Struct]


def _command_fields(struct: type[Struct]) -> str:
    required = [code(to_camel_case(one.name)) for one in structs.fields(struct) if one.required]
    optional = [code(to_camel_case(one.name)) for one in structs.fields(struct) if not one.required]
    return ", ".join([*required, *([f"[{', '.join(optional)}]"] if optional else [])])


def expectation_reference() -> str:
    """The keys of an expectation."""
    if set(FORMS) != set(EXPECTATIONS):
        missing = set(FORMS) ^ set(EXPECTATIONS)
        raise MissingTextError(f"reference_texts.EXPECTATIONS and expect_forms.FORMS differ in {', '.join(missing)}")
    rows = [(code(key), code(f"{key}: {example}"), EXPECTATIONS[key]) for key, (_, example) in FORMS.items()]
    partial = ", ".join(code(key + INCLUDES) for key in LISTS)
    return (
        table(("Key", "Written as", "Must hold"), rows)
        + f"\n\n{partial} check a part of the list. Fields of a pool: {', '.join(map(code, POOL))}."
        + f"\n\nReason codes of `pending`: {', '.join(code(reason.value) for reason in PendingReason)}."
    )


def price_table() -> str:
    """The keys of a price table."""
    rows = [
        (code(one.name.replace("_", "-")), values(one.type), _default(one), meaning(Prices, one.name))
        for one in structs.fields(Prices)
    ]
    return table(("Key", "Values", "Default", "Meaning"), rows)


def instance_types() -> str:
    """The keys of an instance type in a catalogue."""
    elsewhere = ("name", "product", "gpu_memory")
    rows = [
        (code(to_camel_case(one.name)), meaning(InstanceType, one.name))
        for one in structs.fields(InstanceType)
        if one.name not in elsewhere
    ]
    return table(("Key", "Meaning"), rows)


def _table_of(struct: type[Struct]) -> Callable[[], str]:
    return lambda: fields_table(struct)


REGIONS: Mapping[str, Callable[[], str]] = {
    "commands": command_reference,
    "keys": key_reference,
    "configuration": configuration_reference,
    "step-commands": step_commands,
    "expect": expectation_reference,
    "prices": price_table,
    "instance-types": instance_types,
    "scenario": _table_of(ScenarioForm),
    "change-list": _table_of(ChangeForm),
    "cluster": _table_of(ClusterForm),
    "step": _table_of(StepForm),
    "engine": _table_of(EngineForm),
    "placement": _table_of(PlacementForm),
    "usage": _table_of(UsageForm),
    "capacity": _table_of(CapacityForm),
    "links": _table_of(LinksForm),
    "spot": _table_of(SpotForm),
    "groups": _table_of(GroupForm),
    "sharing": _table_of(SharingForm),
    "mig": _table_of(MigForm),
    "replicas": _table_of(ReplicasForm),
    "resource-replicas": _table_of(ResourceReplicasForm),
    "arrivals": _table_of(StreamForm),
    "job-sizes": _table_of(ShapeForm),
    "distribution": _table_of(SpreadForm),
    "latencies": _table_of(LatenciesForm),
    "quantiles": _table_of(QuantilesForm),
    "provisioning": _table_of(AutoscalerForm),
    "admission-fair-sharing": _table_of(ScenarioAdmissionFairSharing),
}
"""Name of a region → its contents."""


if __name__ == "__main__":
    main()
