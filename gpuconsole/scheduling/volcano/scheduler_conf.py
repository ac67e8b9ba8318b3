"""Parser of volcano-scheduler.conf, and all plugins by the names that it gives them.

The text may be the file itself, or the ConfigMap that Volcano is installed with. What is invalid, ignored or not
simulated becomes a finding; the rest is read as Volcano does.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from gpuconsole.model.documents.findings import DocumentFindings, Path
from gpuconsole.model.documents.yaml_json import find_configuration, named
from gpuconsole.scheduling.volcano.config import (
    ACTIONS,
    DEFAULTS,
    EVICTING,
    Flag,
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
FLAGS: Mapping[str, Flag] = {flag.value: flag for flag in Flag}
NOT_HERE = ("extender",)
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
    configuration = VolcanoConfiguration() if document is None else _configuration(document, report)
    return ParsedVolcanoConfiguration(configuration, tuple(report.findings))


def _configuration(document: Mapping[str, Any], report: DocumentFindings) -> VolcanoConfiguration:
    for key in document.keys() - {"actions", "tiers", "configurations", "metrics"}:
        report.warning((key,), "unknown to Volcano", "leave it out", "unknown-field")
    configuration = VolcanoConfiguration(
        actions=tuple(_actions(document.get("actions"), report)),
        tiers=tuple(_tiers(document.get("tiers"), report)),
        arguments=dict(_arguments(document.get("configurations"), report)),
    )
    _advise(configuration, report)
    return configuration


def _actions(said: object, report: DocumentFindings) -> Iterator[str]:
    if not isinstance(said, str):
        report.error(("actions",), "it is not a string", 'write actions: "enqueue, allocate, backfill"', "wrong-type")
        return
    for name in (part.strip() for part in said.split(",")):
        if name in ACTIONS:
            yield name
        else:
            report.error(("actions",), f"unknown action {name!r}", f"one of {', '.join(ACTIONS)}", "unknown-action")


def _tiers(said: object, report: DocumentFindings) -> Iterator[Tier]:
    if said is not None and not isinstance(said, list):
        report.error(("tiers",), "it is not a list", "write a list of plugins for each tier", "wrong-type")
        return
    for number, one in enumerate(said or ()):
        plugins = one.get("plugins") if isinstance(one, dict) else None
        path: Path = ("tiers", number)
        if not isinstance(plugins, list):
            report.error(path, "it has no plugins", "write plugins: [{name: gang}]", "wrong-type")
            continue
        options = [_option(plugin, (*path, "plugins", place), report) for place, plugin in enumerate(plugins)]
        found = tuple(option for option in options if option is not None)
        names = {option.name for option in found}
        if "proportion" in names and any(o.name == "drf" and Flag.HIERARCHY in o.enabled for o in found):
            problem = "proportion and drf with hierarchy are in conflict"
            report.error(path, problem, "choose one of them", "conflict")
        yield found


def _option(said: object, path: Path, report: DocumentFindings) -> VolcanoPluginOption | None:
    name = said.get("name") if isinstance(said, dict) else None
    if not isinstance(said, dict) or not isinstance(name, str):
        report.error(path, "it names no plugin", "write name: gang", "wrong-type")
        return None
    if name not in PLUGINS and name not in NOT_HERE:
        report.warning(path, f"there is no plugin {name!r}; Volcano goes on without it", "correct its name", "unknown")
    enabled = set(DEFAULTS)
    for key, value in said.items():
        flag = FLAGS.get(key)
        on = value if isinstance(value, bool) else parse_flag(str(value))
        if flag is not None and on is not None:
            (enabled.add if on else enabled.discard)(flag)
        elif flag is not None:
            report.error((*path, key), f"{value!r} is neither true nor false", "write true or false", "wrong-type")
        elif key not in ("name", "arguments"):
            report.warning((*path, key), "unknown to Volcano", "correct its name", "unknown-field")
    return VolcanoPluginOption(name=name, enabled=frozenset(enabled), arguments=_given(said.get("arguments")))


def _arguments(said: object, report: DocumentFindings) -> Iterator[tuple[str, VolcanoArguments]]:
    if said is not None and not isinstance(said, list):
        report.error(
            ("configurations",), "it is not a list", "write a name and arguments for each action", "wrong-type"
        )
        return
    for number, one in enumerate(said or ()):
        name = one.get("name") if isinstance(one, dict) else None
        if name in ACTIONS:
            yield name, _given(one.get("arguments"))
        else:
            problem = f"{name!r} is not an action"
            report.warning(("configurations", number), problem, f"one of {', '.join(ACTIONS)}", "unknown-action")


def _given(said: object) -> VolcanoArguments:
    return VolcanoArguments(said) if isinstance(said, dict) else VolcanoArguments()


def _advise(configuration: VolcanoConfiguration, report: DocumentFindings) -> None:
    """Report settings that are valid but probably not intended."""
    actions = set(configuration.actions)
    if not actions.intersection(EVICTING):
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
    if VolumeBindingArguments.of(arguments).bind_timeout < 0:
        problem = "invalid BindTimeoutSeconds, should not be a negative value"
        report.error((*path, BIND_TIMEOUT_ARGUMENT), problem, "write a number of seconds", "bad-timeout")
    given = arguments.integer(TIMEOUT_ARGUMENT, FILTER_TIMEOUT)
    if filter_timeout(arguments) != given:
        problem = f"{given} is not a valid number of seconds; Volcano uses {FILTER_TIMEOUT}"
        report.warning((*path, TIMEOUT_ARGUMENT), problem, "write 0 for no timeout", "bad-timeout")
