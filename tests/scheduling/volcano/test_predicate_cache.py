"""Tasks that are alike are judged once a node: the same decisions as without that, and nothing stale."""

from hypothesis import given
from hypothesis import strategies as st

from gpuconsole.model.pod_template import Container, PodAffinity, PodTemplate, PodTerm
from gpuconsole.model.resources import CPU, GPU
from gpuconsole.scheduling.volcano.actions import ACTIONS
from gpuconsole.scheduling.volcano.api.node import NodeInfo
from gpuconsole.scheduling.volcano.api.task import TaskInfo
from gpuconsole.scheduling.volcano.config import VolcanoArguments, VolcanoConfiguration, VolcanoPluginOption, tier_of
from gpuconsole.scheduling.volcano.node_search import PredicateCache
from gpuconsole.scheduling.volcano.scheduler_conf import PLUGINS
from gpuconsole.scheduling.volcano.session import VolcanoSession
from tests.support.volcano_clusters import cluster, job, node, pod, task

PACKING = VolcanoPluginOption(name="binpack", arguments=VolcanoArguments({"binpack.resources": GPU}))
TIERS = (tier_of("priority", "gang"), (*tier_of("drf", "predicates", "proportion", "nodeorder"), PACKING))


def made(sizes: list[int], gpus: list[int], least: int) -> VolcanoSession:
    tasks = [
        TaskInfo(pod(f"p-{number}", role="w", requests={CPU: 500, GPU: size})) for number, size in enumerate(sizes)
    ]
    nodes = [node(f"n{number}", amounts={GPU: count}) for number, count in enumerate(gpus)]
    return VolcanoSession(
        VolcanoConfiguration(actions=("allocate",), tiers=TIERS),
        cluster(nodes, [job(tasks, min_member=least)]),
        plugins=PLUGINS,
    )


@given(
    st.lists(st.integers(1, 3), min_size=1, max_size=7), st.lists(st.integers(0, 8), min_size=1, max_size=5), st.data()
)
def test_decisions_are_those_of_a_session_that_looks_at_each_task_anew(
    sizes: list[int], gpus: list[int], data: st.DataObject
) -> None:
    least = data.draw(st.integers(1, len(sizes)))
    usual, forgetful = made(sizes, gpus, least), made(sizes, gpus, least)
    forgetful.functions.cacheable_tasks.clear()
    for session in (usual, forgetful):
        ACTIONS["allocate"](session)
    assert [(one.key, one.node_name) for one in usual.binds] == [(one.key, one.node_name) for one in forgetful.binds]


def test_pods_of_one_task_are_of_one_kind_though_they_are_numbered() -> None:
    session = made([1, 1], [8], 1)
    memo = PredicateCache(session)
    numbered = [TaskInfo(pod(f"j-w-{n}", role="w", labels={"volcano.sh/task-index": str(n)})) for n in range(2)]
    assert memo.class_key(numbered[0]) == memo.class_key(numbered[1]) is not None
    assert memo.class_key(TaskInfo(pod("j-w-2", role="w", labels={"zone": "a"}))) != memo.class_key(numbered[0])
    assert memo.class_key(TaskInfo(pod("j-v-0", role="v"))) != memo.class_key(TaskInfo(pod("j-w-9", role="w")))


def test_pods_that_mind_others_are_judged_each_time() -> None:
    far = PodAffinity(required=(PodTerm(topology_key="zone"),))
    picky = TaskInfo(pod("p", template=PodTemplate(containers=(Container(requests={GPU: 1}),), pod_anti_affinity=far)))
    assert PredicateCache(made([1], [8], 1)).class_key(picky) is None


def test_a_plugin_that_says_nothing_of_it_is_asked_each_time() -> None:
    session = made([1], [8], 1)
    session.functions.predicates["own"] = lambda task, node: None
    assert PredicateCache(session).class_key(task("p")) is None


def test_a_node_changes_when_a_task_comes_or_goes() -> None:
    info, one = NodeInfo(node("n")), task("p")
    seen = [info.change_count]
    info.add_task(one)
    seen.append(info.change_count)
    info.remove_task(one)
    seen.append(info.change_count)
    assert len(set(seen)) == 3
