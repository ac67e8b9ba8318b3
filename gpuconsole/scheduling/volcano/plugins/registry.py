"""All of Volcano's plugins, by the name that volcano-scheduler.conf gives them."""

from collections.abc import Mapping

from gpuconsole.scheduling.volcano.plugin import VolcanoPlugin
from gpuconsole.scheduling.volcano.plugins.binpack import BinpackPlugin
from gpuconsole.scheduling.volcano.plugins.capacity import CapacityPlugin
from gpuconsole.scheduling.volcano.plugins.cdp import CdpPlugin
from gpuconsole.scheduling.volcano.plugins.conformance import ConformancePlugin
from gpuconsole.scheduling.volcano.plugins.deviceshare import DevicesharePlugin
from gpuconsole.scheduling.volcano.plugins.drf import DrfPlugin
from gpuconsole.scheduling.volcano.plugins.gang import GangPlugin
from gpuconsole.scheduling.volcano.plugins.network_topology_aware import NetworkTopologyAwarePlugin
from gpuconsole.scheduling.volcano.plugins.nodegroup import NodegroupPlugin
from gpuconsole.scheduling.volcano.plugins.nodeorder import NodeorderPlugin
from gpuconsole.scheduling.volcano.plugins.numaaware import NumaAwarePlugin
from gpuconsole.scheduling.volcano.plugins.overcommit import OvercommitPlugin
from gpuconsole.scheduling.volcano.plugins.pdb import PdbPlugin
from gpuconsole.scheduling.volcano.plugins.predicates import PredicatesPlugin
from gpuconsole.scheduling.volcano.plugins.priority import PriorityPlugin
from gpuconsole.scheduling.volcano.plugins.proportion import ProportionPlugin
from gpuconsole.scheduling.volcano.plugins.rescheduling import ReschedulingPlugin
from gpuconsole.scheduling.volcano.plugins.resource_strategy_fit import ResourceStrategyFitPlugin
from gpuconsole.scheduling.volcano.plugins.resourcequota import ResourcequotaPlugin
from gpuconsole.scheduling.volcano.plugins.sla import SlaPlugin
from gpuconsole.scheduling.volcano.plugins.task_topology import TaskTopologyPlugin
from gpuconsole.scheduling.volcano.plugins.tdm import TdmPlugin
from gpuconsole.scheduling.volcano.plugins.usage import UsagePlugin

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
