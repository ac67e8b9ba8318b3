"""Volcano's plugins, by the name that volcano-scheduler.conf gives them."""

from collections.abc import Mapping

from gpuconsole.scheduling.volcano.plugin import Plugin

PLUGINS: Mapping[str, type[Plugin]] = {}
