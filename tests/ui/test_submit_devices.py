"""The submit form where a cluster has no whole GPUs: MIG instances, shared GPUs, devices of a class (DRA)."""

import pytest
from msgspec.structs import replace

from gpuconsole.backends.simulated import SimulatedBackend
from gpuconsole.insight.index.available_quota import choice_of, device_choices, headroom
from gpuconsole.insight.index.demand import wanted_units
from gpuconsole.model.cluster import Namespace
from gpuconsole.model.devices import ResourceClaimTemplate, counted_units
from gpuconsole.model.job import Job
from gpuconsole.model.manifests import load_text
from gpuconsole.model.objects import Object
from gpuconsole.model.pod_template import Container, PodSet, PodTemplate
from gpuconsole.model.queues import LocalQueue, ResourceFlavor
from gpuconsole.model.resources import Resources
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.services.console import Console
from gpuconsole.services.status import ConsoleStatus
from gpuconsole.ui.job_templates import BY_ID, TEMPLATES, JobTemplate, JobTemplateRequest
from gpuconsole.ui.paint import plain
from gpuconsole.ui.screens import submit as submit_form
from gpuconsole.ui.screens.submit import SubmitScreen
from gpuconsole.ui.widgets.dialogs import Confirm
from tests.insight.test_device_units import KINDS, cluster, simulation
from tests.support.console_clusters import FLAVOR, KUEUE, a_job, cluster_queue, node, recorded, simulated
from tests.support.console_stage import Stage, staged

DEBOUNCE = 0.3
WIDE = (160, 50)


def values(stage: Stage) -> dict[str, str]:
    return stage.screen(SubmitScreen).form.values


def console(name: str, jobs: int = 0) -> Console:
    made = Console(
        SimulatedBackend(simulation(KINDS[name], kueue=True, jobs=jobs), speed=1.0),
        about=ConsoleStatus(source="test", engines=KUEUE),
    )
    made.tick(0.0)
    return made


def request(snapshot: Snapshot, **changes: object) -> JobTemplateRequest:
    """A request for the devices that the cluster has."""
    device = device_choices(snapshot)[0]
    plain_request = JobTemplateRequest(
        namespace="team", name="a", resource=device.resource, device_class=device.device_class
    )
    return replace(plain_request, **changes)


@pytest.mark.parametrize("size", [(80, 24), WIDE], ids=str)
@pytest.mark.parametrize("name", KINDS)
async def test_a_job_for_the_devices_of_the_cluster_is_submitted_by_keyboard_only_and_admitted(
    name: str, size: tuple[int, int]
) -> None:
    unit = KINDS[name].unit
    async with staged(console(name), size) as stage:
        await stage.press("8", "ctrl+t", str([template.id for template in TEMPLATES].index("sweep") + 1))
        await stage.press("down", "down", "down", "down", "down", "down", "ctrl+u")
        await stage.write("1")
        await stage.press("down", "ctrl+u")
        await stage.write("2")
        await stage.wait(DEBOUNCE)
        assert (values(stage)["gpus"], values(stage)["pods"], values(stage)["namespace"]) == ("1", "2", "team")
        assert f"✓ 2 {unit}s fit available quota now" in stage.text
        assert stage.line(" Template ").split("Template")[1].strip().startswith(f"Sweep: 8 pods of 1 {unit}")
        assert " Per pod " in stage.text
        await stage.press("ctrl+s")
        stage.screen(Confirm)
        assert f"2 pods × 1 {unit}, queue lq" in stage.text
        await stage.press("tab", "enter")
        await stage.tick(times=5)
        snapshot = stage.app.cluster.snapshot
        (workload,) = snapshot.workloads.all()
        assert workload.admitted
        assert {unit.noun: n for unit, n in wanted_units(snapshot, workload).items()} == {unit: 2}
        assert all(pod.node for pod in snapshot.pods.all())


@pytest.mark.parametrize("name", KINDS)
def test_the_prospects_count_the_devices_that_are_requested(name: str) -> None:
    kind, snapshot = KINDS[name], cluster(KINDS[name], kueue=True, jobs=1)
    (room,) = headroom(snapshot)

    def said(gpus: int, pods: int) -> list[str]:
        found = submit_form.request_prospects(snapshot, request(snapshot, queue="lq", gpus=gpus, pods=pods), room)
        return [plain(row) for row in found]

    flavor = "  a100: 1 available (1 without borrowing), max 2"
    assert said(1, 1) == [f"✓ 1 {kind.unit} fits available quota now", flavor]
    words = f"◐ 2 {kind.unit}s do not fit available quota: pending, or preempts (ctrl+o: what-if)"
    assert said(1, 2) == [words, flavor]
    assert said(3, 1) == [
        f"⚠ no node has 3 {kind.unit}s: the largest has 2",
        f"⚠ requests 3 {kind.unit}s; the maximum capacity of cq is 2",
        flavor,
    ]


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda template: template.id)
@pytest.mark.parametrize("name", ["MIG mixed", "DRA"])
def test_every_template_requests_other_devices_than_whole_gpus(template: JobTemplate, name: str) -> None:
    snapshot = cluster(KINDS[name], kueue=True, jobs=0)
    wanted = request(snapshot, queue="lq", gpus=2, pods=3)
    if name == "DRA" and template.id == "trainjob":
        fields = {"template": template.id, **submit_form.defaults(template), "name": "a", "namespace": "team"}
        device = choice_of(snapshot, wanted.resource, wanted.device_class)
        _, problems = submit_form.read({**fields, "queue": "lq", "priority": ""}, device=device)
        assert problems == {"device": "a TrainJob cannot claim devices"}
        return
    loaded = load_text(template.text(wanted))
    assert [finding.problem for finding in loaded.findings if finding.severity == "error"] == []
    (job,) = (thing for thing in loaded.objects if isinstance(thing, Job))
    if name == "MIG mixed":
        asked = [(part.count, part.template.requests.get(wanted.resource, 0)) for part in job.pod_sets]
    else:
        (made,) = (thing for thing in loaded.objects if isinstance(thing, ResourceClaimTemplate))
        assert [(one.device_class, one.count) for one in made.requests] == [("gpu.example.com", 2)]
        asked = [(part.count, 2 * claims(part.template, made)) for part in job.pod_sets]
    assert sum(count * each for count, each in asked) == 6
    assert not any("nvidia.com/gpu" in part.template.requests for part in job.pod_sets)


def claims(template: PodTemplate, made: ResourceClaimTemplate) -> int:
    return [claim.template for claim in template.resource_claims].count(made.name)


@pytest.mark.parametrize("name", KINDS)
async def test_a_job_for_devices_is_duplicated_into_the_form_with_its_devices(name: str) -> None:
    made = console(name, jobs=1)
    (choice,) = device_choices(made.snapshot)
    async with staged(made) as stage:
        await stage.press("3", "D")
        await stage.wait(DEBOUNCE)
        assert (values(stage)["device"], values(stage)["gpus"], values(stage)["pods"]) == (choice.key, "1", "1")


def room(**amounts: int) -> Resources:
    return {"cpu": 128_000, "memory": 2**40, "pods": 110, **{f"nvidia.com/{k}": n for k, n in amounts.items()}}


def mixed() -> list[Object]:
    """A node with whole GPUs, two with MIG instances; a queue for each, and a namespace without whole GPUs."""
    mig = room(**{"mig-1g.10gb": 7})
    queues = []
    for name, resource in (("gpus", "nvidia.com/gpu"), ("slices", "nvidia.com/mig-1g.10gb")):
        queue = cluster_queue(f"cq-{name}", 6)
        (group,) = queue.resource_groups
        (flavor,) = group.flavors
        (quota,) = flavor.resources.values()
        of_mig = replace(flavor, resources={resource: quota})
        queues.append(
            replace(queue, resource_groups=(replace(group, covered_resources=(resource,), flavors=(of_mig,)),))
        )
    return [
        ResourceFlavor(name=FLAVOR),
        node("n1", 8),
        *(replace(node(name), allocatable=mig, capacity=mig) for name in ("n2", "n3")),
        *(Namespace(name=name, labels={}) for name in ("both", "small")),
        *queues,
        LocalQueue(namespace="both", name="gpus", cluster_queue="cq-gpus"),
        LocalQueue(namespace="both", name="slices", cluster_queue="cq-slices"),
        LocalQueue(namespace="small", name="slices", cluster_queue="cq-slices"),
    ]


async def test_device_and_queue_follow_each_other_where_there_are_several_kinds() -> None:
    async with staged(recorded(mixed()), WIDE) as stage:
        await stage.press("8")

        def chosen() -> tuple[str, str, str]:
            return values(stage)["namespace"], values(stage)["queue"], values(stage)["device"]

        assert chosen() == ("both", "gpus", "nvidia.com/gpu")
        assert "GPUs per pod" in stage.text
        assert "nvidia.com/gpu  8 GPUs" in stage.line(" Device ")
        await stage.press("down", "down", "right")
        assert chosen() == ("both", "slices", "nvidia.com/mig-1g.10gb")
        assert "nvidia.com/mig-1g.10gb  14 MIG 1g.10gb instances" in stage.line(" Device ")
        assert "6 available (6 without borrowing)" in stage.line(" Queue ")
        await stage.press("left")
        assert chosen() == ("both", "gpus", "nvidia.com/gpu")
        await stage.press("down", "down", "down", "right")
        assert chosen() == ("both", "slices", "nvidia.com/mig-1g.10gb")
        await stage.press("up", "up", "up", "up", "right")
        assert chosen() == ("small", "slices", "nvidia.com/mig-1g.10gb")
        await stage.press("down", "down", "down", "down", "left")
        await stage.wait(DEBOUNCE)
        assert chosen() == ("small", "slices", "nvidia.com/gpu")
        assert "⚠ cq-slices has no quota for nvidia.com/gpu" in stage.text


async def test_a_cluster_with_whole_gpus_only_offers_no_choice_of_devices() -> None:
    gpus = [thing for thing in mixed() if getattr(thing, "name", "") not in ("n2", "n3", "cq-slices")]
    async with staged(recorded(gpus), WIDE) as stage:
        await stage.press("8")
        assert "device" not in values(stage)
        assert " Device " not in stage.text
        assert "GPUs per pod" in stage.text


def test_devices_without_a_node_are_offered_last_where_there_is_quota_of_them() -> None:
    objects = [thing for thing in mixed() if getattr(thing, "name", "") != "n1"]
    snapshot = recorded(objects).snapshot
    assert submit_form.device_words(snapshot) == [
        ("nvidia.com/mig-1g.10gb", "nvidia.com/mig-1g.10gb  14 MIG 1g.10gb instances"),
        ("nvidia.com/gpu", "nvidia.com/gpu  no nodes"),
    ]
    assert counted_units(1, choice_of(snapshot, "nvidia.com/gpu").unit) == "1 GPU"


def test_a_pod_of_mig_instances_requests_their_part_of_cpu_and_memory() -> None:
    training = BY_ID["training"]
    whole = JobTemplateRequest(namespace="n", name="a", gpus=1, covered=frozenset({"cpu", "memory"}))
    part = replace(whole, resource="nvidia.com/mig-3g.40gb")
    found = []
    for one in (whole, part):
        (job,) = load_text(training.text(one)).objects
        assert isinstance(job, Job)
        requests = job.pod_sets[0].template.requests
        found.append((requests["cpu"], requests["memory"] // 2**30))
    assert found == [(8000, 64), (4000, 32)]


def mig_job(resource: str) -> Job:
    """A job of two pods that request three instances each, in the queue of the small ones."""
    template = PodTemplate(containers=(Container(requests={resource: 3}, limits={resource: 3}),))
    return replace(a_job("sliced", 3, "both", ""), queue="slices", pod_sets=(PodSet(count=2, template=template),))


async def test_a_job_is_duplicated_with_its_device_where_whole_gpus_would_come_first() -> None:
    made = simulated([*mixed(), mig_job("nvidia.com/mig-1g.10gb")])
    made.tick(5.0)
    async with staged(made, WIDE) as stage:
        await stage.press("3", "D")
        await stage.wait(DEBOUNCE)
        found = values(stage)
        assert (found["device"], found["gpus"], found["pods"], found["queue"]) == (
            "nvidia.com/mig-1g.10gb",
            "3",
            "2",
            "slices",
        )
        assert " Per pod " in stage.text
        assert "→ cq-slices" in stage.line(" Queue ")


async def test_a_job_whose_device_nobody_offers_is_duplicated_with_a_warning() -> None:
    made = simulated([*mixed(), mig_job("nvidia.com/mig-7g.80gb")])
    made.tick(5.0)
    async with staged(made, WIDE) as stage:
        await stage.press("3", "D")
        await stage.wait(DEBOUNCE)
        said = [notice.message for notice in stage.app._notifications]
        assert said == ["No node has nvidia.com/mig-7g.80gb; choose another device"]
