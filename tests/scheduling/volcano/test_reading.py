"""What a volcano-scheduler.conf says, and what is found wrong with it."""

import pytest

from gpuconsole.scheduling.volcano.config import (
    ENABLED_BY_DEFAULT,
    HELM_CONF,
    EnabledFlag,
    VolcanoArguments,
    VolcanoConfiguration,
    VolcanoPluginOption,
    tier_of,
)
from gpuconsole.scheduling.volcano.scheduler_conf import read_configuration

HELM = VolcanoConfiguration(
    tiers=(
        (
            VolcanoPluginOption(name="priority"),
            VolcanoPluginOption(name="gang", enabled=ENABLED_BY_DEFAULT - {EnabledFlag.PREEMPTABLE}),
            VolcanoPluginOption(name="conformance"),
        ),
        (
            VolcanoPluginOption(name="overcommit"),
            VolcanoPluginOption(name="drf", enabled=ENABLED_BY_DEFAULT - {EnabledFlag.PREEMPTABLE}),
            *tier_of("predicates", "proportion", "nodeorder", "binpack"),
        ),
    ),
)

WHOLE = """\
actions: "enqueue, reclaim,allocate"
configurations:
- name: allocate
  arguments: {predicateErrorCacheEnable: false}
tiers:
- plugins:
  - name: gang
    enablePreemptable: false
    enabledVictim: "false"
  - name: drf
    enableHierarchy: true
    arguments: {some: 1}
"""


def said(text: str) -> list[str]:
    return [f"{one.severity} {one.line} {one.path}: {one.problem}" for one in read_configuration(text).findings]


def test_everything_is_read() -> None:
    assert read_configuration(WHOLE).configuration == VolcanoConfiguration(
        actions=("enqueue", "reclaim", "allocate"),
        tiers=(
            (
                VolcanoPluginOption(
                    name="gang", enabled=ENABLED_BY_DEFAULT - {EnabledFlag.PREEMPTABLE, EnabledFlag.VICTIM}
                ),
                VolcanoPluginOption(
                    name="drf",
                    enabled=ENABLED_BY_DEFAULT | {EnabledFlag.HIERARCHY},
                    arguments=VolcanoArguments({"some": 1}),
                ),
            ),
        ),
        arguments={"allocate": VolcanoArguments({"predicateErrorCacheEnable": False})},
    )


def test_what_helm_ships_is_read_as_it_is_known() -> None:
    assert read_configuration(HELM_CONF).configuration == HELM


def test_volcano_never_preempts_unless_told_to_and_does_not_pack_gpus() -> None:
    assert said(HELM_CONF) == [
        "note 1 actions: nothing is ever preempted: priorities only order pending jobs",
        "note 15 tiers[1].plugins[5]: bin-packing scores cpu and memory only: GPUs are not packed",
    ]
    told = HELM_CONF.replace("backfill", "backfill, preempt")
    told = told.replace("- name: binpack", "- name: binpack\n    arguments: {binpack.resources: nvidia.com/gpu}")
    assert said(told) == []


def test_the_configmap_that_volcano_is_installed_with_is_read() -> None:
    inner = WHOLE.replace("\n", "\n    ")
    text = f"apiVersion: v1\nkind: ConfigMap\ndata:\n  volcano-scheduler.conf: |\n    {inner}"
    assert read_configuration(text).configuration == read_configuration(WHOLE).configuration


WRONG = {
    "an action that there is not": (
        "actions: enqueue, evict, preempt\ntiers: []",
        ["error 1 actions: unknown action 'evict'"],
    ),
    "a plugin that there is not is left out by Volcano": (
        "actions: preempt\ntiers:\n- plugins:\n  - name: gangs",
        ["warning 4 tiers[0].plugins[0]: there is no plugin 'gangs'; Volcano goes on without it"],
    ),
    "a flag that there is not": (
        "actions: preempt\ntiers:\n- plugins:\n  - name: gang\n    enablePreemtable: false",
        ["warning 5 tiers[0].plugins[0].enablePreemtable: unknown to Volcano"],
    ),
    "proportion beside hierarchical drf": (
        "actions: preempt\ntiers:\n- plugins:\n  - {name: proportion}\n  - {name: drf, enableHierarchy: true}",
        ["error 3 tiers[0]: proportion and drf with hierarchy are in conflict"],
    ),
    "evictions for tasks beside evictions for gangs": (
        "actions: preempt, gangpreempt\ntiers: []",
        ["warning 1 actions: preempt and reclaim conflict with gangpreempt and gangreclaim"],
    ),
    "arguments of no action": (
        "actions: preempt\nconfigurations:\n- name: premept",
        ["warning 3 configurations[0]: 'premept' is not an action"],
    ),
    "a timeout with which Volcano does not start": (
        "actions: preempt\ntiers:\n- plugins:\n  - name: predicates\n"
        "    arguments: {volumebinding.bindTimeoutSeconds: -1}",
        [
            "error 5 tiers[0].plugins[0].arguments[volumebinding.bindTimeoutSeconds]: "
            "invalid BindTimeoutSeconds, should not be a negative value"
        ],
    ),
    "a timeout that Volcano leaves out": (
        "actions: preempt\ntiers:\n- plugins:\n  - name: predicates\n"
        "    arguments: {dynamicresources.filterTimeoutSeconds: -5}",
        [
            "warning 5 tiers[0].plugins[0].arguments[dynamicresources.filterTimeoutSeconds]: "
            "-5 is not a valid number of seconds; Volcano uses 10"
        ],
    ),
    "nothing that Volcano would read": ("hello: 1", ["error 1 : it names neither actions nor tiers"]),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_found(name: str) -> None:
    text, findings = WRONG[name]
    assert said(text) == findings
