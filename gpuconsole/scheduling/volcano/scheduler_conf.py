"""Parser of volcano-scheduler.conf, and all plugins by the names that it gives them.

The text may be the file itself, or the ConfigMap that Volcano is installed with. What is invalid, ignored or not
simulated becomes a finding; the rest is read as Volcano does.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from gpuconsole.model.documents.findings import DocumentFindings, Path
from gpuconsole.model.documents.yaml_json import find_configuration, named
from gpuconsole.scheduling.volcano.config import (
    ENABLED_BY_DEFAULT,
    EVICTING_ACTIONS,
    KNOWN_ACTIONS,
    EnabledFlag,
    ParsedVolcanoConfiguration,
    Tier,
    VolcanoArguments,
    VolcanoConfiguration,
    VolcanoPluginOption,
    parse_flag,
)
from gpuconsole.scheduling.volcano.plugins.capacity import CapacityPlugin
from gpuconsole.scheduling.volcano.plugins.deviceshare import DevicesharePlugin
from gpuconsole.scheduling.volcano.plugins.drf import DrfPlugin
from gpuconsole.scheduling.volcano.plugins.eviction_protection import CdpPlugin, ConformancePlugin, PdbPlugin
from gpuconsole.scheduling.volcano.plugins.gang_and_priority import GangPlugin, PriorityPlugin
from gpuconsole.scheduling.volcano.plugins.job_enqueueing import OvercommitPlugin, ResourcequotaPlugin, SlaPlugin
from gpuconsole.scheduling.volcano.plugins.network_topology_aware import NetworkTopologyAwarePlugin
from gpuconsole.scheduling.volcano.plugins.node_filters import (
    BIND_TIMEOUT_ARGUMENT,
    FILTER_TIMEOUT,
    TIMEOUT_ARGUMENT,
    VolumeBindingArguments,
    filter_timeout,
)
from gpuconsole.scheduling.volcano.plugins.nodeorder import (
    BinpackPlugin,
    NodeorderPlugin,
    ReschedulingPlugin,
    ResourceStrategyFitPlugin,
    UsagePlugin,
)
from gpuconsole.scheduling.volcano.plugins.numaaware import NumaAwarePlugin
from gpuconsole.scheduling.volcano.plugins.predicates import NodegroupPlugin, PredicatesPlugin, TdmPlugin
from gpuconsole.scheduling.volcano.plugins.proportion import ProportionPlugin
from gpuconsole.scheduling.volcano.plugins.task_topology import TaskTopologyPlugin
from gpuconsole.scheduling.volcano.session import VolcanoPlugin

PLUGINS: Mapping[str, type[VolcanoPlugin]] = {
    plugin.name: plugin
    for plugin in (
        BinpackPlugin,
        CapacityPlugin,
        CdpPlugin,
        ConformancePlugin,
        DevicesharePlugin,
        DrfPlugin,
        GangPlugin,
        NetworkTopologyAwarePlugin,
        NodegroupPlugin,
        NodeorderPlugin,
        NumaAwarePlugin,
        OvercommitPlugin,
        PdbPlugin,
        PredicatesPlugin,
        PriorityPlugin,
        ProportionPlugin,
        ReschedulingPlugin,
        ResourceStrategyFitPlugin,
        ResourcequotaPlugin,
        SlaPlugin,
        TaskTopologyPlugin,
        TdmPlugin,
        UsagePlugin,
    )
}


MAP_KEYS = ("volcano-scheduler.conf", "volcano-scheduler-ci.conf")
"""Keys under which the ConfigMap may hold the file."""
FLAG_NAMES: Mapping[str, EnabledFlag] = {flag.value: flag for flag in EnabledFlag}
NOT_SIMULATED = ("extender",)
"""Plugins of Volcano that are accepted in the configuration but not simulated."""


def read_configuration(text: str, name: str = "volcano-scheduler.conf") -> ParsedVolcanoConfiguration:
    """Read a configuration; invalid parts are left out or take their defaults, with a finding."""
    document, report = find_configuration(
        text,
        name,
        meant=lambda found: "tiers" in found or "actions" in found,
        holds=named(*MAP_KEYS),
        absent=("it names neither actions nor tiers", "write what volcano-scheduler.conf holds"),
    )
    configuration = VolcanoConfiguration() if document is None else _read_document(document, report)
    return ParsedVolcanoConfiguration(configuration, tuple(report.findings))


def _read_document(document: Mapping[str, Any], report: DocumentFindings) -> VolcanoConfiguration:
    for key in document.keys() - {"actions", "tiers", "configurations", "metrics"}:
        report.warning((key,), "unknown to Volcano", "leave it out", "unknown-field")
    configuration = VolcanoConfiguration(
        actions=tuple(_read_actions(document.get("actions"), report)),
        tiers=tuple(_read_tiers(document.get("tiers"), report)),
        arguments=dict(_read_action_arguments(document.get("configurations"), report)),
    )
    _report_advice(configuration, report)
    return configuration


def _read_actions(given: object, report: DocumentFindings) -> Iterator[str]:
    if not isinstance(given, str):
        report.error(("actions",), "it is not a string", 'write actions: "enqueue, allocate, backfill"', "wrong-type")
        return
    for name in (part.strip() for part in given.split(",")):
        if name in KNOWN_ACTIONS:
            yield name
        else:
            report.error(
                ("actions",), f"unknown action {name!r}", f"one of {', '.join(KNOWN_ACTIONS)}", "unknown-action"
            )


def _read_tiers(given: object, report: DocumentFindings) -> Iterator[Tier]:
    if given is not None and not isinstance(given, list):
        report.error(("tiers",), "it is not a list", "write a list of plugins for each tier", "wrong-type")
        return
    for number, one in enumerate(given or ()):
        plugins = one.get("plugins") if isinstance(one, dict) else None
        path: Path = ("tiers", number)
        if not isinstance(plugins, list):
            report.error(path, "it has no plugins", "write plugins: [{name: gang}]", "wrong-type")
            continue
        options = [_read_plugin(plugin, (*path, "plugins", place), report) for place, plugin in enumerate(plugins)]
        found = tuple(option for option in options if option is not None)
        names = {option.name for option in found}
        if "proportion" in names and any(o.name == "drf" and EnabledFlag.HIERARCHY in o.enabled for o in found):
            problem = "proportion and drf with hierarchy are in conflict"
            report.error(path, problem, "choose one of them", "conflict")
        yield found


def _read_plugin(given: object, path: Path, report: DocumentFindings) -> VolcanoPluginOption | None:
    name = given.get("name") if isinstance(given, dict) else None
    if not isinstance(given, dict) or not isinstance(name, str):
        report.error(path, "it names no plugin", "write name: gang", "wrong-type")
        return None
    if name not in PLUGINS and name not in NOT_SIMULATED:
        report.warning(path, f"there is no plugin {name!r}; Volcano goes on without it", "correct its name", "unknown")
    enabled = set(ENABLED_BY_DEFAULT)
    for key, value in given.items():
        flag = FLAG_NAMES.get(key)
        on = value if isinstance(value, bool) else parse_flag(str(value))
        if flag is not None and on is not None:
            (enabled.add if on else enabled.discard)(flag)
        elif flag is not None:
            report.error((*path, key), f"{value!r} is neither true nor false", "write true or false", "wrong-type")
        elif key not in ("name", "arguments"):
            report.warning((*path, key), "unknown to Volcano", "correct its name", "unknown-field")
    return VolcanoPluginOption(name=name, enabled=frozenset(enabled), arguments=_arguments_of(given.get("arguments")))


def _read_action_arguments(given: object, report: DocumentFindings) -> Iterator[tuple[str, VolcanoArguments]]:
    if given is not None and not isinstance(given, list):
        report.error(
            ("configurations",), "it is not a list", "write a name and arguments for each action", "wrong-type"
        )
        return
    for number, one in enumerate(given or ()):
        name = one.get("name") if isinstance(one, dict) else None
        if name in KNOWN_ACTIONS:
            yield name, _arguments_of(one.get("arguments"))
        else:
            problem = f"{name!r} is not an action"
            report.warning(("configurations", number), problem, f"one of {', '.join(KNOWN_ACTIONS)}", "unknown-action")


def _arguments_of(given: object) -> VolcanoArguments:
    return VolcanoArguments(given) if isinstance(given, dict) else VolcanoArguments()


def _report_advice(configuration: VolcanoConfiguration, report: DocumentFindings) -> None:
    """Report settings that are valid but probably not intended."""
    actions = set(configuration.actions)
    if not actions.intersection(EVICTING_ACTIONS):
        problem = "nothing is ever preempted: priorities only order pending jobs"
        report.note(("actions",), problem, "add preempt, or reclaim between queues", "never-preempts")
    if actions & {"preempt", "reclaim"} and actions & {"gangpreempt", "gangreclaim"}:
        problem = "preempt and reclaim conflict with gangpreempt and gangreclaim"
        report.warning(("actions",), problem, "keep one pair of them", "conflict")
    for number, options in enumerate(configuration.tiers):
        for place, option in enumerate(options):
            if option.name == "predicates":
                _check_timeouts(option.arguments, ("tiers", number, "plugins", place, "arguments"), report)
            resources = option.arguments.text("binpack.resources", "")
            if option.name == "binpack" and "gpu" not in resources:
                path: Path = ("tiers", number, "plugins", place)
                problem = "bin-packing scores cpu and memory only: GPUs are not packed"
                report.note(path, problem, "set binpack.resources: nvidia.com/gpu", "binpack-without-gpus")


def _check_timeouts(arguments: VolcanoArguments, path: Path, report: DocumentFindings) -> None:
    """Report a negative timeout for volumes, with which Volcano does not start, and one for devices, which it
    ignores.
    """
    if VolumeBindingArguments.from_arguments(arguments).bind_timeout < 0:
        problem = "invalid BindTimeoutSeconds, should not be a negative value"
        report.error((*path, BIND_TIMEOUT_ARGUMENT), problem, "write a number of seconds", "bad-timeout")
    given = arguments.integer(TIMEOUT_ARGUMENT, FILTER_TIMEOUT)
    if filter_timeout(arguments) != given:
        problem = f"{given} is not a valid number of seconds; Volcano uses {FILTER_TIMEOUT}"
        report.warning((*path, TIMEOUT_ARGUMENT), problem, "write 0 for no timeout", "bad-timeout")
