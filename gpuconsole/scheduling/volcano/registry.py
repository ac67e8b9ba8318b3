"""Volcano's plugins, by the name that volcano-scheduler.conf gives them."""

from collections.abc import Mapping

from gpuconsole.scheduling.volcano.plugin import Plugin
from gpuconsole.scheduling.volcano.plugins.binpack import BinpackPlugin
from gpuconsole.scheduling.volcano.plugins.cdp import CdpPlugin
from gpuconsole.scheduling.volcano.plugins.network_topology_aware import NetworkTopologyAwarePlugin
from gpuconsole.scheduling.volcano.plugins.nodegroup import NodegroupPlugin
from gpuconsole.scheduling.volcano.plugins.nodeorder import NodeorderPlugin
from gpuconsole.scheduling.volcano.plugins.pdb import PdbPlugin
from gpuconsole.scheduling.volcano.plugins.predicates import PredicatesPlugin
from gpuconsole.scheduling.volcano.plugins.resource_strategy_fit import ResourceStrategyFitPlugin
from gpuconsole.scheduling.volcano.plugins.resourcequota import ResourcequotaPlugin
from gpuconsole.scheduling.volcano.plugins.sla import SlaPlugin
from gpuconsole.scheduling.volcano.plugins.tdm import TdmPlugin
from gpuconsole.scheduling.volcano.plugins.usage import UsagePlugin

PLUGINS: Mapping[str, type[Plugin]] = {
    plugin.name: plugin
    for plugin in (
        BinpackPlugin,
        CdpPlugin,
        NetworkTopologyAwarePlugin,
        NodegroupPlugin,
        NodeorderPlugin,
        PdbPlugin,
        PredicatesPlugin,
        ResourceStrategyFitPlugin,
        ResourcequotaPlugin,
        SlaPlugin,
        TdmPlugin,
        UsagePlugin,
    )
}
