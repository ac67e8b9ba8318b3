"""Objects that are decoded one by one hold the same parts where they say the same, and never too many are kept."""

import msgspec
from msgspec.structs import replace

from gpuconsole.model.cluster import Namespace, Node, Pod
from gpuconsole.model.job import Job
from gpuconsole.model.labels import Toleration
from gpuconsole.model.objects import LARGEST, MOST, InternTable, Object, intern
from gpuconsole.model.pod_template import Container, PodSet, PodTemplate
from gpuconsole.model.resources import GPU
from gpuconsole.model.workloads import Admission, Condition, PodSetAssignment, PodSetNeeds, Workload

OBJECTS = msgspec.msgpack.Decoder(Object)
TEMPLATE = PodTemplate(
    labels={"app": "train"},
    containers=(Container(requests={GPU: 8}, limits={GPU: 8}),),
    node_selector={"pool": "a100"},
    tolerations=(Toleration("nvidia.com/gpu", "Exists"),),
)


def workload(name: str, template: PodTemplate = TEMPLATE) -> Workload:
    return Workload(
        namespace="team",
        name=name,
        labels={"team": "a"},
        annotations={"gpuconsole.io/duration": "1h"},
        queue="lq",
        priority_class="batch",
        priority_kind="WorkloadPriorityClass",
        pod_sets=(PodSet(count=2, template=template),),
        conditions=(Condition("QuotaReserved", True, "QuotaReserved", f"Quota reserved, {len(name)}", since=7),),
        admission=Admission(cluster_queue="cq", pod_sets=(PodSetAssignment(usage={GPU: 16}),)),
        resource_requests=(PodSetNeeds("main", {GPU: 16}),),
    )


def read(thing: Object) -> Object:
    """As it is decoded: made anew, down to the last mapping."""
    found: Object = OBJECTS.decode(msgspec.msgpack.encode(thing))
    return found


def read_and_shared(thing: Object) -> Object:
    found = intern(read(thing))
    assert found == thing
    return found


def test_workloads_that_say_the_same_hold_the_same() -> None:
    one, other = read_and_shared(workload("one")), read_and_shared(workload("two"))
    assert isinstance(one, Workload)
    assert isinstance(other, Workload)
    for part in ("namespace", "labels", "annotations", "queue", "priority_class", "priority_kind", "admission"):
        assert getattr(one, part) is getattr(other, part), part
    assert one.pod_sets[0] is other.pod_sets[0]
    assert one.resource_requests[0] is other.resource_requests[0]
    for text in ("type", "reason", "message"):
        assert getattr(one.conditions[0], text) is getattr(other.conditions[0], text), text


def test_a_template_with_a_name_among_its_labels_shares_all_else() -> None:
    named = (replace(TEMPLATE, labels={"app": "train", "job-name": name}) for name in ("one", "two"))
    found = [read_and_shared(workload("any", template)) for template in named]
    one, other = (thing.pod_sets[0].template for thing in found if isinstance(thing, Workload))
    assert (one.labels, other.labels) == ({"app": "train", "job-name": "one"}, {"app": "train", "job-name": "two"})
    for part in ("containers", "node_selector", "tolerations"):
        assert getattr(one, part) is getattr(other, part), part


def test_jobs_and_pods_share_what_they_ask_for_with_workloads() -> None:
    found = read_and_shared(workload("any"))
    job = read_and_shared(Job(name="job", pod_sets=(PodSet(count=2, template=TEMPLATE),)))
    pod = read_and_shared(Pod(name="pod", template=TEMPLATE))
    assert isinstance(found, Workload)
    assert isinstance(job, Job)
    assert isinstance(pod, Pod)
    assert job.pod_sets[0] is found.pod_sets[0]
    assert pod.template.containers is found.pod_sets[0].template.containers


def test_nodes_of_one_kind_share_what_they_offer_and_the_texts_of_their_labels() -> None:
    one, other = (
        read_and_shared(
            Node(
                name=name,
                labels={"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": "zone-a"},
                capacity={GPU: 8, "cpu": 96_000},
                allocatable={GPU: 8, "cpu": 95_000},
                conditions={"MemoryPressure": False},
            )
        )
        for name in ("one", "two")
    )
    assert isinstance(one, Node)
    assert isinstance(other, Node)
    assert (one.labels["kubernetes.io/hostname"], other.labels["kubernetes.io/hostname"]) == ("one", "two")
    assert one.labels["topology.kubernetes.io/zone"] is other.labels["topology.kubernetes.io/zone"]
    for part in ("capacity", "allocatable", "conditions"):
        assert getattr(one, part) is getattr(other, part), part


def test_what_shares_nothing_is_what_it_was() -> None:
    namespace = Namespace(name="team-a")
    assert intern(namespace) is namespace


def test_mappings_in_another_order_stay_what_they_are() -> None:
    known = InternTable[dict[str, str]]()
    assert list(known.one({"a": "1", "b": "2"})) == ["a", "b"]
    assert list(known.one({"b": "2", "a": "1"})) == ["b", "a"]


def test_so_many_are_known_at_most_and_none_that_is_large() -> None:
    known = InternTable[str]()
    for number in range(3 * MOST):
        assert known.one(str(number)) == str(number)
        assert len(known) <= MOST
    known.clear()
    large = "x" * (LARGEST + 1)
    assert known.one(large) is large
    assert not known
