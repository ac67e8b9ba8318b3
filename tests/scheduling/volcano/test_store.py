"""What Volcano's sessions are opened on: made once, copied for each session, and without what is over."""

from msgspec.structs import replace

from gpuconsole.model.cluster import Node, Pod, PodPhase
from gpuconsole.model.pod_template import Container, PodTemplate
from gpuconsole.model.resources import GPU
from gpuconsole.scheduling.volcano.api.task import TaskStatus
from gpuconsole.scheduling.volcano.store import VolcanoStore, with_pod_group

QUEUE = "scheduling.volcano.sh/queue-name"


def pod(name: str, *, gang: str = "", queue: str = "", phase: PodPhase = PodPhase.SUCCEEDED) -> Pod:
    template = PodTemplate(containers=(Container(requests={GPU: 1}),))
    notes = {QUEUE: queue} if queue else {}
    node = "n" if phase is not PodPhase.PENDING else ""
    return with_pod_group(Pod(name=name, template=template, gang=gang, annotations=notes, phase=phase, node=node))


def jobs(store: VolcanoStore) -> dict[str, list[str]]:
    """The jobs of a session with their tasks."""
    return {uid: sorted(task.name for task in job.tasks.values()) for uid, job in sorted(store.cluster(0).jobs.items())}


def stocked(*pods: Pod) -> VolcanoStore:
    store = VolcanoStore("default")
    store.apply(Node(name="n", allocatable={GPU: 8}))
    for one in pods:
        store.apply(one)
    return store


def test_jobs_that_are_over_are_left_out_but_the_first_of_each_queue() -> None:
    gone = [pod("a"), pod("b"), pod("c", queue="other"), pod("d", gang="team"), pod("e", gang="team")]
    store = stocked(*gone, pod("f", phase=PodPhase.RUNNING))
    everything = {**{f"default/podgroup-{name}": [name] for name in "abf"}, "default/team": ["d", "e"]}
    assert jobs(store) == everything, "nobody was told yet that they are over; the queue of c is not there"
    for key in ("default/podgroup-a", "default/podgroup-b", "default/team"):
        store.set_phase(key, "Completed")
    assert jobs(store) == {"default/podgroup-a": ["a"], "default/podgroup-f": ["f"]}
    assert store.phases == {
        "default/podgroup-a": "Completed",
        "default/podgroup-b": "Completed",
        "default/team": "Completed",
    }


def test_a_job_that_was_over_is_back_with_a_new_pod() -> None:
    store = stocked(pod("a"), pod("d", gang="team"))
    store.set_phase("default/team", "Completed")
    assert jobs(store) == {"default/podgroup-a": ["a"]}
    store.apply(pod("e", gang="team", phase=PodPhase.PENDING))
    assert jobs(store) == {"default/podgroup-a": ["a"], "default/team": ["d", "e"]}


def test_each_session_has_tasks_and_nodes_of_its_own() -> None:
    store = stocked(pod("a", phase=PodPhase.RUNNING))
    first = store.cluster(0)
    task = next(iter(first.jobs["default/podgroup-a"].tasks.values()))
    task.status = TaskStatus.RELEASING
    first.nodes["n"].update_task(task)
    again = store.cluster(0)
    assert [one.status for one in again.jobs["default/podgroup-a"].tasks.values()] == [TaskStatus.RUNNING]
    assert (again.nodes["n"].idle.get(GPU), again.nodes["n"].releasing.get(GPU)) == (7000, 0)


def test_a_pod_that_changes_is_read_anew() -> None:
    waiting = pod("a", phase=PodPhase.PENDING)
    store = stocked(waiting)
    assert store.cluster(0).jobs["default/podgroup-a"].phase == "Pending"
    store.set_phase("default/podgroup-a", "Inqueue")
    store.apply(replace(waiting, node="n", phase=PodPhase.RUNNING))
    job = store.cluster(0).jobs["default/podgroup-a"]
    assert (job.phase, [task.status for task in job.tasks.values()]) == ("Inqueue", [TaskStatus.RUNNING])
