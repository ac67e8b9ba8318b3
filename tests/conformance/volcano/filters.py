"""volcano/scheduler_plugins_predicates: which of kube-scheduler's plugins run where, and what arguments say of them."""

from collections.abc import Mapping, Sequence

from gpuconsole.scheduling.volcano.config import VolcanoArguments, VolcanoConfiguration, VolcanoPluginOption
from gpuconsole.scheduling.volcano.plugins.node_filters import VolumeBindingArguments, filter_timeout
from gpuconsole.scheduling.volcano.plugins.predicates import PredicatesPlugin
from gpuconsole.scheduling.volcano.scheduler_conf import PLUGINS
from gpuconsole.scheduling.volcano.session import ClusterInfo, VolcanoSession
from tests.conformance.tables import Case, Check, Table, compare

SWITCHES: Mapping[str, str] = {
    "enableNodeAffinity": "predicate.NodeAffinityEnable",
    "enableNodePorts": "predicate.NodePortsEnable",
    "enableTaintToleration": "predicate.TaintTolerationEnable",
    "enablePodAffinity": "predicate.PodAffinityEnable",
    "enableNodeVolumeLimits": "predicate.NodeVolumeLimitsEnable",
    "enableVolumeZone": "predicate.VolumeZoneEnable",
    "enablePodTopologySpread": "predicate.PodTopologySpreadEnable",
    "enableVolumeBinding": "predicate.VolumeBindingEnable",
}


def _in_force(table: Table, case: Case) -> Sequence[str]:
    """Names at each point: all that are wanted there, and none that is not."""
    option = VolcanoPluginOption(
        name="predicates",
        arguments=VolcanoArguments({argument: case.input[field] for field, argument in SWITCHES.items()}),
    )
    gates = {"DynamicResourceAllocation": case.input["enableDRA"]}
    session = VolcanoSession(
        VolcanoConfiguration(tiers=((option,),)), ClusterInfo(feature_gates=gates), plugins=PLUGINS
    )
    (plugin,) = session.plugins
    assert isinstance(plugin, PredicatesPlugin)
    # What is kept for a pod that got a node is bound before the pod is: both are one thing here.
    found = {
        "Filter": [one.name for one in plugin.filters],
        "StableFilter": [one.name for one in plugin.stable_filters],
        "Prefilter": [one.name for one in plugin.prefilters],
        "Reserve": [one.name for one in plugin.reserve_filters],
        "PreBind": [one.name for one in plugin.reserve_filters],
        "Score": [one.name for one in plugin.score_filters],
    }
    problems: list[str] = []
    for point, names in found.items():
        wanted = case.want.get(f"expectIn{point}") or ()
        problems += compare(f"missing in {point}", sorted(set(wanted) - set(names)), [])
        unwanted = case.want.get(f"expectNotIn{point}") or ()
        problems += compare(f"too much in {point}", sorted(set(unwanted) & set(names)), [])
    return problems


def _device_timeout(table: Table, case: Case) -> Sequence[str]:
    seconds = filter_timeout(VolcanoArguments(case.input["rawArgs"]))
    return list(compare("timeout", f"{seconds}s", case.want["expectedDur"]))


def _volume_binding(table: Table, case: Case) -> Sequence[str]:
    """Weight, timeout and, as the data leaves out what they are, the number of the shape's points."""
    scores = (case.document.get("featureGates") or {}).get("StorageCapacityScoring", False)
    found = VolumeBindingArguments.from_arguments(VolcanoArguments(case.input["rawArgs"]), scores=scores)
    wanted = case.want["expected"]
    inner = wanted["VolumeBindingArgs"]
    return [
        *compare("weight", found.weight, wanted["Weight"]),
        *compare("timeout", found.bind_timeout, inner["BindTimeoutSeconds"]),
        *compare("points", len(found.shape), len(inner.get("Shape") or ())),
    ]


_P = "volcano/scheduler_plugins_predicates/"
CHECKS: dict[str, Check] = {
    _P + "TestInitPlugin": _in_force,
    _P + "TestSetUpDynamicResourcesArgs_OverideSeconds": _device_timeout,
    _P + "TestSetUpVolumeBindingArgs": _volume_binding,
}
