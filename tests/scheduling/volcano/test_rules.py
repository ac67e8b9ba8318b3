"""Single rules of Volcano's plugins and actions, each by the smallest cluster in which it decides something."""

import pytest
from msgspec.structs import replace

from gpuconsole.model.devices import DeviceRequest, ResourceClaim
from gpuconsole.model.pod_template import Container, PodClaim, PodTemplate
from gpuconsole.model.resources import CPU, GPU
from gpuconsole.model.volcano import PodGroup
from gpuconsole.scheduling.heap import Heap
from gpuconsole.scheduling.volcano.actions import ACTIONS
from gpuconsole.scheduling.volcano.actions.gang_eviction import split_into_bundles
from gpuconsole.scheduling.volcano.api.job import JobInfo
from gpuconsole.scheduling.volcano.api.queue import unallocated_min_resources
from gpuconsole.scheduling.volcano.api.task import PREEMPTABLE
from gpuconsole.scheduling.volcano.api.task import DraResource as Devices
from gpuconsole.scheduling.volcano.config import Sampling, VolcanoArguments, VolcanoConfiguration, tier_of
from gpuconsole.scheduling.volcano.engine import close_session
from gpuconsole.scheduling.volcano.node_search import NodeFinder
from gpuconsole.scheduling.volcano.plugins.capacity import CapacityPlugin
from gpuconsole.scheduling.volcano.plugins.proportion import ProportionPlugin
from gpuconsole.scheduling.volcano.scheduler_conf import PLUGINS
from gpuconsole.scheduling.volcano.session import VolcanoSession
from gpuconsole.scheduling.volcano.store import ResourceClaimMissing, claimed_devices, total_devices
from tests.scheduling.volcano.test_actions import TIERS, acted, gone, machine, work
from tests.scheduling.volcano.test_gang_eviction import acted as gang_acted
from tests.scheduling.volcano.test_gang_eviction import gone as gang_gone
from tests.scheduling.volcano.test_gang_eviction import running, waiting
from tests.scheduling.volcano.test_shares import TREE, opened, opens, plugin_of, wants
from tests.support.volcano_clusters import cluster, job, pod, queue, task


def names(tasks: object) -> list[str]:
    return [one.name for one in tasks or ()]  # type: ignore[attr-defined]


def test_a_guarantee_of_another_resource_protects_too() -> None:
    queues = [opens("root"), opens("lab", deserved={GPU: 1}, guarantee={CPU: 3000}), opens("app", deserved={GPU: 4})]
    lab = job([task(f"lab-{n}", group="lab", on="n1") for n in range(3)], name="lab", queue="lab", min_member=1)
    app = wants("app", 1)
    candidates = [one.copy() for one in lab.tasks.values()]
    assert names(opened("capacity", [lab, app], queues).reclaimable(app.tasks["app-w0"], candidates)) == []
    queues[1] = opens("lab", deserved={GPU: 1})
    free = opened("capacity", [lab, app], queues).reclaimable(app.tasks["app-w0"], candidates)
    assert names(free) == ["lab-2", "lab-1"]


def test_nobody_goes_who_has_nothing_of_what_is_asked_for() -> None:
    queues = [opens("root"), opens("lab", deserved={GPU: 1}), opens("app", deserved={CPU: 4000})]
    lab = wants("lab", 0, 3)
    app = job([task("cpu", group="app", requests={CPU: 1000})], name="app", queue="app")
    session = opened("capacity", [lab, app], queues)
    assert names(session.reclaimable(app.tasks["cpu"], [one.copy() for one in lab.tasks.values()])) == []


def test_kin_that_deserve_nothing_leave_each_other_alone() -> None:
    queues = [opens("root"), opens("org", parent="root", deserved={GPU: 4})]
    queues += [opens("a", parent="org"), opens("b", parent="org")]
    a, b = wants("a", 0, 4), wants("b", 1)
    candidates = [one.copy() for one in a.tasks.values()]
    for level, count in ((0, 4), (1, 0)):
        session = opened("capacity", [a, b], queues, arguments={"ancestorReclaimLevel": level})
        assert len(session.reclaimable(b.tasks["b-w0"], candidates) or ()) == count


def test_a_queue_that_deserves_nothing_comes_after_those_that_still_have_less() -> None:
    session = opened(
        "capacity",
        [wants("none", 1), wants("some", 1, 1)],
        [opens("root"), opens("none"), opens("some", deserved={GPU: 2})],
    )
    assert session.queue_precedes(session.queues["some"], session.queues["none"])


def test_a_queue_may_use_its_own_guarantee_but_not_those_of_others() -> None:
    books = plugin_of(opened("capacity", [], TREE), CapacityPlugin).queues.attributes
    assert (books["lab"].real_capability.get(GPU), books["app"].real_capability.get(GPU)) == (6000, 5000)


def test_capacity_lets_a_job_in_only_if_all_queues_above_have_room() -> None:
    def group(count: int) -> JobInfo:
        made = wants("lab", count)
        made.set_pod_group(PodGroup(name="lab", queue="lab", min_resources={GPU: count}, phase="Pending"))
        return made

    for count, phase in ((6, "Inqueue"), (7, "Pending")):
        session = opened("capacity", [group(count)], TREE)
        ACTIONS["enqueue"](session)
        assert session.jobs["default/lab"].phase == phase
    assert [text for _, text in session.events] == ["queue resource quota insufficient: insufficient nvidia.com/gpu"]


def test_a_queue_at_its_capability_reclaims_nothing() -> None:
    queues = [opens("root"), opens("a", deserved={GPU: 4, CPU: 8000}, capability={GPU: 2})]
    session = opened("capacity", [wants("a", 1, 2)], queues)
    assert not session.preemptive(session.queues["a"], [task("next", requests={GPU: 1})])
    assert session.preemptive(session.queues["a"], [task("next", requests={CPU: 1000})])


def test_proportion_takes_back_no_more_than_what_is_beyond_the_due() -> None:
    session = opened("proportion", [wants("a", 0, 5), wants("b", 8)], [opens("a"), opens("b")])
    candidates = [one.copy() for one in session.jobs["default/a"].tasks.values()]
    assert names(session.reclaimable(session.jobs["default/b"].tasks["b-w0"], candidates)) == ["a-r0"]


def test_less_than_the_whole_cluster_is_never_promised() -> None:
    jobs = [work(name, phase="Pending", min_resources={GPU: 4}) for name in ("a",)]
    made = cluster([machine("n1", 4)], jobs, queues=[queue("team", state="Open")])
    option = replace(tier_of("overcommit")[0], arguments=VolcanoArguments({"overcommit-factor": 0.5}))
    session = VolcanoSession(VolcanoConfiguration(tiers=((option,),)), made, plugins=PLUGINS)
    ACTIONS["enqueue"](session)
    assert session.jobs["default/a"].phase == "Inqueue"


def test_a_gang_is_ready_only_if_each_role_is() -> None:
    tasks = [task("m", group="g", role="master"), *(task(f"w{n}", group="g", role="worker") for n in range(2))]
    need = {"master": 1, "worker": 1}
    session = acted([job(tasks, name="g", min_member=2, min_task_member=need)], gpus={"n1": 4})
    owner = session.jobs["default/g"]
    for name in ("w0", "w1"):
        session.allocate(owner.tasks[name], session.nodes["n1"])
    assert (owner.is_ready(), session.job_ready(owner)) == (True, False)
    session.allocate(owner.tasks["m"], session.nodes["n1"])
    assert session.job_ready(owner)


def test_what_kubernetes_needs_is_no_victim() -> None:
    session = acted([], gpus={"n1": 4}, tiers=(tier_of("conformance"),))
    critical = task("c", template=PodTemplate(priority_class="system-node-critical"))
    system = task("s", namespace="kube-system")
    assert names(session.preemptable(task("asker"), [critical, system, task("plain")])) == ["plain"]


def test_a_running_job_keeps_the_rest_of_its_minresources_reserved() -> None:
    owner = work("a", running=2, phase="Running", min_resources={GPU: 4})
    assert unallocated_min_resources(owner).get(GPU) == 2000
    session = opened("proportion", [owner], [opens("team")])
    assert plugin_of(session, ProportionPlugin).queues["team"].inqueue.get(GPU) == 2000
    jobs = [owner, work("b", phase="Pending", min_resources={GPU: 3})]
    assert acted(jobs, "enqueue", gpus={"n1": 5}, tiers=(tier_of("overcommit"),)).jobs["default/b"].phase == "Pending"
    jobs[0] = work("a", running=2, phase="Running", min_resources={GPU: 2})
    assert acted(jobs, "enqueue", gpus={"n1": 5}, tiers=(tier_of("overcommit"),)).jobs["default/b"].phase == "Inqueue"


def test_topology_aware_preemption_compares_nodes_by_what_their_victims_are_worth() -> None:
    dear, cheap = work("dear", running=2, priority=5, on="n1"), work("cheap", running=2, priority=1, on="n2")
    arguments = {"preempt": VolcanoArguments({"enableTopologyAwarePreemption": True, "minCandidateNodesAbsolute": 2})}
    high = work("high", 1, priority=10)
    session = acted([dear, cheap, high], "preempt", gpus={"n1": 2, "n2": 2}, arguments=arguments)
    assert gone(session) == ["cheap-r0"]


def test_a_task_that_asks_for_nothing_preempts_only_its_like() -> None:
    nothing = job([task("nothing", group="free", requests={}, priority=10)], name="free", min_member=1)
    nothing.priority = 10
    assert gone(acted([work("low", running=4), nothing], "preempt", gpus={"n1": 4})) == []


def test_a_policy_of_never_forbids_to_preempt_and_to_reclaim() -> None:
    template = PodTemplate(containers=(Container(requests={GPU: 1}),), preemption_policy="Never")
    shy = job([task("shy", group="shy", template=template, priority=10)], name="shy", min_member=1)
    shy.priority = 10
    assert gone(acted([work("low", running=4), shy.copy()], "preempt", gpus={"n1": 4})) == []
    assert gone(acted([work("abroad", running=4, queue="other"), shy.copy()], "reclaim", gpus={"n1": 4})) == []
    bold = job([task("bold", group="bold", priority=10)], name="bold", min_member=1)
    bold.priority = 10
    assert gone(acted([work("abroad", running=4, queue="other"), bold], "reclaim", gpus={"n1": 4})) == ["abroad-r2"]


def test_reclaim_serves_all_jobs_of_a_queue() -> None:
    jobs = [work("abroad", running=6, queue="other"), work("a", 1), work("b", 1)]
    session = acted(jobs, "reclaim", gpus={"n1": 6})
    assert all(session.jobs[f"default/{name}"].is_pipelined() for name in "ab")


def test_gangs_evict_neither_equals_nor_jobs_that_forbid_it() -> None:
    assert (
        gang_gone(gang_acted([running("same", "n1", 4, priority=10), waiting("gang", 2)], "gangpreempt", nodes=1)) == []
    )
    firm = running("firm", "n1", 4, annotations={PREEMPTABLE: "false"})
    assert gang_gone(gang_acted([firm, waiting("gang", 2)], "gangpreempt", nodes=1)) == []


def test_a_role_at_its_minimum_is_not_spared_though_the_job_has_more_than_it_needs() -> None:
    tasks = [task("m", group="g", role="master", on="n1")]
    tasks += [task(f"w{n}", group="g", role="worker", on="n1") for n in range(3)]
    owner = job(tasks, name="g", min_member=2, min_task_member={"master": 1, "worker": 1})
    found = [(one.breaks_gang, [each.name for each in one.tasks]) for one in split_into_bundles(owner, tasks)]
    assert found == [(False, ["w0", "w1"]), (True, ["m", "w2"])]


def test_a_search_ends_when_enough_nodes_fit_and_the_next_begins_there() -> None:
    made = cluster([machine(f"n{number:03}", 4) for number in range(200)], [work("a", 1)])
    session = VolcanoSession(
        VolcanoConfiguration(tiers=TIERS), made, plugins=PLUGINS, sampling=Sampling(minimum_nodes=50, percentage=25)
    )
    finder = NodeFinder(session)
    first, _ = finder.find_feasible(session.jobs["default/a"].tasks["a-w0"], session.node_list, lambda *_: None)
    second, _ = finder.find_feasible(session.jobs["default/a"].tasks["a-w0"], session.node_list, lambda *_: None)
    assert (len(first), first[0].name, second[0].name) == (50, "n000", "n050")


def test_a_job_whose_gang_is_torn_while_some_of_it_runs_is_unknown() -> None:
    session = acted([work("torn", 1, running=1, least=2, phase="Running")], gpus={"n1": 1})
    close_session(session)
    owner = session.jobs["default/torn"]
    assert owner.phase == "Unknown"
    message = "1/2 tasks in gang unschedulable: pod group is not ready, 1 Pending, 1 Running, 2 minAvailable"
    assert session.conditions[owner.uid].message.startswith(message)


def test_a_heap_gives_the_first_first_whatever_came_when() -> None:
    heap = Heap(lambda left, right: left < right, [5, 3, 8, 1, 9, 2, 7])
    assert [heap.pop() for _ in range(len(heap))] == [1, 2, 3, 5, 7, 8, 9]


def test_claims_count_once_and_amounts_for_each_device() -> None:
    asked = DeviceRequest(device_class="gpu", count=2, capacity={"memory": 8})
    claims = {f"default/{name}": ResourceClaim(namespace="default", name=name, requests=(asked,)) for name in "ab"}
    named = PodTemplate(resource_claims=(PodClaim("x", claim="a"), PodClaim("y", claim="b"), PodClaim("z", claim="a")))
    found = claimed_devices(pod("p", template=named), claims)
    assert total_devices(found) == {"gpu": Devices(4, {"memory": 32})}
    with pytest.raises(ResourceClaimMissing, match="default/a"):
        claimed_devices(pod("p", template=named), {})
