"""KAI's table of scenarios of victims that grow: the sessions of its tests are made anew, by the names of the cases.

The data has few of their variables. What is expected stands in the names, and in the variables where they are told.
"""

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from gpuconsole.model.cluster import Node
from gpuconsole.scheduling.kai.api.jobs import PodGroupInfo, single_pod_set_tree
from gpuconsole.scheduling.kai.api.nodes import KaiNodeInfo
from gpuconsole.scheduling.kai.api.tasks import (
    PODS,
    KaiPodStatus,
    PodInfo,
    ResourceAmounts,
    ResourceRequirements,
    new_request,
)
from gpuconsole.scheduling.kai.fair_share.division import KaiQueueQuota, QueueState
from gpuconsole.scheduling.kai.session import KaiSession
from gpuconsole.scheduling.kai.solving.solver import GrowingScenario, ScenarioGenerator, victim_order
from tests.conformance.tables import Case, Check, NotModelled, Table, compare

NODE = "node-1"


class Input(Struct, frozen=True, kw_only=True):
    """Running jobs of tasks of one GPU each, the minimum of their gangs, and who waits for GPUs."""

    jobs: int = 0
    tasks: int = 0
    minimum: int = 1
    gpus: int = 1
    """What the pending task asks for."""
    recorded: tuple[int, ...] = ()
    """Jobs that are recorded as victims."""
    recorded_task: str = ""
    """The only task of the first job that is recorded."""


_NO_JOBS = "with no jobs - NewIdleGpusFilter"
_IRRELEVANT = f"{_NO_JOBS} irrelevant"
_OPTIONAL = "with optional victim jobs returns scenario with all tasks in single groups when minAvailable is"
_SAME, _NUMBER = (
    "returns scenarios that have the same recorded victims",
    "returns scenarios that have correct number of",
)
INPUTS: Mapping[str, Input] = {
    f"{_IRRELEVANT} Reclaimer has pods, NewIdleGpusFilter irrelevant, no victims scenario is valid": Input(gpus=0),
    f"{_IRRELEVANT} No victims queue, no next scenario": Input(gpus=0),
    f"{_NO_JOBS} filters no victim scenario Empty victimsQueue, no valid scenario": Input(),
    f"{_OPTIONAL} 1": Input(jobs=2, tasks=2),
    f"{_OPTIONAL} amount of pods": Input(jobs=2, tasks=2, minimum=2),
    f"with recorded victims {_SAME}": Input(jobs=3, tasks=2, minimum=2, recorded=(0, 2)),
    f"with recorded victims {_NUMBER} potential victims": Input(jobs=3, tasks=2, minimum=2, recorded=(0, 2)),
    f"with recorded victims that are elastic {_SAME}": Input(jobs=1, tasks=3, recorded_task="pod-2"),
    f"with recorded victims that are elastic {_NUMBER} potential victims": Input(
        jobs=1, tasks=4, minimum=2, recorded_task="pod-3"
    ),
}


def _task(number: int, job: str, gpus: int, status: KaiPodStatus) -> PodInfo:
    request = new_request(gpus) if gpus else ResourceRequirements(scalars={PODS: 1})
    node = NODE if status is KaiPodStatus.RUNNING else ""
    return PodInfo(str(number), job=job, name=f"pod-{number}", request=request, status=status, node=node)


def _session(given: Input) -> KaiSession:
    jobs = [
        PodGroupInfo(
            str(job),
            queue=f"team-{job}",
            root=single_pod_set_tree(given.minimum),
            tasks=[_task(job * given.tasks + n, str(job), 1, KaiPodStatus.RUNNING) for n in range(given.tasks)],
        )
        for job in range(given.jobs)
    ]
    node = KaiNodeInfo(Node(name=NODE), ResourceAmounts(gpus=given.jobs * given.tasks))
    for job in jobs:
        for task in job.tasks():
            node.add_task(task)
    names = [job.queue for job in jobs]
    queues = [QueueState(uid=name, parent="default", gpu=KaiQueueQuota(quota=1)) for name in (*names, "team-a")]
    queues.append(QueueState(uid="default", children=tuple(names)))
    return KaiSession(jobs=jobs, nodes=[node], queues=queues)


def _walk(given: Input) -> Iterator[GrowingScenario]:
    """The one scenario as it grows."""
    session = _session(given)
    reclaimer = PodGroupInfo(
        "reclaimer", queue="team-a", tasks=[_task(100, "reclaimer", given.gpus, KaiPodStatus.PENDING)]
    )
    recorded = [session.jobs[str(number)] for number in given.recorded]
    if given.recorded_task:
        first = session.jobs["0"]
        recorded = [first.partial_job([task for task in first.tasks() if task.name == given.recorded_task])]
    victims = victim_order(session, session.jobs.values())
    scenarios = ScenarioGenerator(session, reclaimer, recorded, victims, session.nodes)
    scenario = scenarios.first_scenario()
    while scenario is not None:
        yield scenario
        scenario = scenarios.next_scenario()


def grown(table: Table, case: Case) -> Sequence[str]:
    given = INPUTS.get(case.name)
    if given is None:
        raise NotModelled("the session of the test is not told")
    if "minAvailable is" in case.name:
        return list(_in_groups(given))
    found = [(sorted(task.name for task in s.recorded), len(s.potential)) for s in _walk(given)]
    told = {local["name"]: local["value"] for local in case.document.get("locals") or ()}
    return [
        *compare("scenarios", bool(found), "no valid scenario" not in case.name),
        *(compare("further scenarios", len(found), 1) if "no next scenario" in case.name else ()),
        *(line for recorded, _ in found for line in compare("recorded", recorded, found[0][0])),
        *(compare("recorded", bool(found[0][0]), True) if "recorded victims" in case.name else ()),
        *(
            compare("potential victims", [count for _, count in found], told["potentialVictimsPerScenario"])
            if "potentialVictimsPerScenario" in told
            else ()
        ),
    ]


def _in_groups(given: Input) -> Iterator[str]:
    """In the end all tasks are victims, in groups as large as may be taken at once."""
    last = list(_walk(given))[-1]
    yield from compare("victims", len(last.potential), given.jobs * given.tasks)
    for task in last.potential:
        group = last.partial_job_of(task)
        yield from compare(f"group of {task.name}", group and len(list(group.tasks())), given.minimum)


CHECKS: dict[str, Check] = {
    "kai/scheduler_actions_common_solvers/pod_scenario_builder__PodAccumulatedScenarioBuilder": grown,
}
