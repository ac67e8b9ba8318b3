"""What has to be reached: scenarios agree but for those that KNOWN.md names, and areas of tables have a bar."""

import re
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path

from tests.conformance.scenarios import SCENARIOS
from tests.conformance.tables import Score

MOST = 3
FILE = Path(__file__).with_name("KNOWN.md")
_LINE = re.compile(r"^- (scenarios(?:-timed)?/\S+) (\S+):", re.MULTILINE)

BARS: tuple[tuple[int, tuple[str, ...]], ...] = (
    (
        97,
        (
            *("cache_queue*", "cache_scheduler", "config", "manifests", "resources", "scheduler"),
            *("scheduler_flavorassigner", "scheduler_preemption*", "util_tas", "webhooks", "workload"),
        ),
    ),
    (
        90,
        (
            *("controller_admissionchecks_provisioning", "controller_tas", "controller_workloaddispatcher"),
            *("dra", "workloadslicing"),
        ),
    ),
    (
        95,
        (
            *("volcano/scheduler_actions_*", "volcano/scheduler_generated", "volcano/scheduler_api"),
            *("volcano/controllers_job", "volcano/controllers_job_*"),
            *(
                f"volcano/scheduler_plugins_{plugin}"
                for plugin in (
                    *("binpack", "capacity", "drf", "gang", "network-topology-aware", "nodeorder", "predicates"),
                    *("priority", "proportion", "sla"),
                )
            ),
        ),
    ),
    (
        90,
        (
            *("kai/generated_resource_division", "kai/scheduler_actions_*"),
            *("kai/scheduler_plugins_proportion_reclaimable*", "kai/scheduler_plugins_proportion_resource_division"),
        ),
    ),
)
"""(percent, areas): how many of an area's countable cases have to pass. Other areas are printed, and decide nothing."""

UNUSED = frozenset(
    (
        "resources/TestAmountAsApproximateFloat64",
        "volcano/controllers_job/TestPluginOnJobAdd",
        "volcano/controllers_job/TestPluginOnJobDelete",
        "volcano/controllers_job/TestRecordPodGroupEvent",
        "volcano/scheduler_api/TestEqual",
        "volcano/scheduler_api/TestGetPodResourceWithResize",
        "volcano/scheduler_api/TestGetPodResourceWithoutInitContainers",
        "volcano/scheduler_api/TestHyperNodesInfo_GetLeafNodes",
        "volcano/scheduler_api/TestIsZero",
        "volcano/scheduler_api/TestLess",
        "volcano/scheduler_api/TestLessEqualPartly",
        "volcano/scheduler_api/TestLessEqualPartly_2",
        "volcano/scheduler_api/TestLess_2",
        "volcano/scheduler_api/TestSetMaxResource",
        "volcano/webhooks_admission_jobs_mutate/TestMutateSpecPartitionPolicyDefaults",
        "volcano/webhooks_admission_jobs_validate/TestValidateJobUpdate",
        "volcano/webhooks_admission_podgroups_mutate/Test_createPodGroupPatch",
        "volcano/webhooks_admission_queues_mutate/TestMutateQueues",
    )
)
"""Tables of functions that nothing here would call; they are not compared, and do not count."""


def problems(results: Iterable[Score], text: str) -> Iterator[str]:
    """Why the comparison fails: scenarios that differ without being known, and too many that are known."""
    known = set(_LINE.findall(text))
    if len(known) > MOST:
        yield f"KNOWN.md names {len(known)} scenarios, {MOST} are accepted"
    for result in results:
        if result.name.partition("/")[0] in SCENARIOS:
            for name in result.failures:
                if (result.name, name) not in known:
                    yield f"{result.name} {name} differs: {result.failures[name][0]}"


def areas(results: Iterable[Score]) -> Iterator[str]:
    """A line for each area of tables: how much of it passed, and whether that reaches its bar."""
    sums: dict[str, tuple[int, int]] = {}
    for result in results:
        area = result.name.rpartition("/")[0]
        passed, total = sums.get(area, (0, 0))
        sums[area] = passed + result.passed, total + result.total
    for area, (passed, total) in sums.items():
        if area not in SCENARIOS and total:
            yield f"{area} {passed}/{total} = {100 * passed / total:.1f} %{_verdict(area, passed, total)}"


def _verdict(area: str, passed: int, total: int) -> str:
    bar = next((percent for percent, patterns in BARS if any(fnmatchcase(area, p) for p in patterns)), None)
    if bar is None:
        return ""
    return f" (bar {bar} %)" if 100 * passed >= bar * total else f" BELOW THE BAR OF {bar} %"
