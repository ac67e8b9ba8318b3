"""LimitRanges: what a namespace gives to containers that do not say what they need."""

from gpuconsole.model.clock import HOUR
from gpuconsole.model.cluster import LimitRange, LimitRangeItem, Pod
from gpuconsole.model.job import Job
from gpuconsole.model.pod_template import Container, PodSet, PodTemplate
from tests.support.sim_cluster import GPU, UNQUEUED, job, key_of, nodes, start, submit, two_teams

DEFAULTS = LimitRange(
    namespace="red",
    name="defaults",
    items=(LimitRangeItem(default={GPU: 3}, default_request={GPU: 2}), LimitRangeItem(type="Pod", max={GPU: 4})),
)


def silent(queue: str = "lq") -> Job:
    """A job whose container asks for nothing."""
    part = PodSet(template=PodTemplate(containers=(Container(),), restart_policy="Never"))
    return Job(namespace="red", name="silent", queue=queue, pod_sets=(part,), duration=HOUR)


def test_a_job_that_asks_for_nothing_gets_the_default_request() -> None:
    simulation = start([*two_teams(), DEFAULTS])
    submit(simulation, silent())
    workload = simulation.snapshot().workloads[key_of(simulation, "red/silent")]
    assert workload.gpus == 2
    assert [len(pod.gpus) for pod in simulation.snapshot().pods.all()] == [2]


def test_what_a_container_asks_for_itself_stands() -> None:
    simulation = start([*two_teams(), DEFAULTS])
    submit(simulation, job("asks", gpus=1))
    assert [len(pod.gpus) for pod in simulation.snapshot().pods.all()] == [1]


def test_pods_that_nothing_queues_get_it_too_and_other_namespaces_do_not() -> None:
    simulation = start([*nodes(2), DEFAULTS], UNQUEUED)
    bare = PodTemplate(containers=(Container(),))
    submit(simulation, silent(""), Pod(namespace="red", name="lone", template=bare), Pod(name="far", template=bare))
    assert {pod.name: len(pod.gpus) for pod in simulation.snapshot().pods.all()} == {"silent-0": 2, "lone": 2, "far": 0}
