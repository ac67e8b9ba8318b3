"""PodGroups that Volcano makes for pods of other kinds."""

import pytest

from gpuconsole.model.cluster import Pod
from gpuconsole.model.volcano import NetworkTopology
from gpuconsole.scheduling.volcano.jobs.pod_group import group_of_pod
from tests.support.volcano_jobs import template


def pod(**notes: str) -> Pod:
    keys = {name: name.replace("__", "/").replace("_", "-") for name in notes}
    annotations = {keys[name].replace("volcano-sh", "volcano.sh"): text for name, text in notes.items()}
    return Pod(namespace="red", name="p", template=template(cpu=500), annotations=annotations)


def test_a_pod_group_asks_for_as_many_pods_as_the_owner_says() -> None:
    one, two = (
        group_of_pod(pod(), "podgroup-u", notes) for notes in ({}, {"scheduling.volcano.sh/group-min-member": "2"})
    )
    assert (one.key, one.min_member, one.phase) == ("red/podgroup-u", 1, "Pending")
    assert (two.min_member, two.min_resources) == (
        2,
        {"count/pods": 2, "pods": 2, "requests.cpu": 1000, "cpu": 1000},
    )
    assert group_of_pod(pod(), "g", {"scheduling.volcano.sh/group-min-member": "many"}).min_member == 1


def test_a_pod_groups_annotations_are_the_owners_and_the_pods() -> None:
    notes = {"volcano.sh/preemptable": "false", "other": "x", "volcano.sh/custom": "1"}
    group = group_of_pod(pod(volcano_sh__preemptable="true", team="red"), "g", notes)
    assert group.annotations == {"volcano.sh/preemptable": "true", "volcano.sh/custom": "1"}


@pytest.mark.parametrize(
    ("notes", "wanted"),
    [
        ({}, None),
        ({"volcano_sh__network_topology_mode": "Soft"}, NetworkTopology("soft")),
        ({"volcano_sh__network_topology_highest_tier": "2"}, NetworkTopology("hard", 2)),
        (
            {"volcano_sh__network_topology_mode": "near", "volcano_sh__network_topology_highest_tier": "x"},
            NetworkTopology("hard"),
        ),
    ],
    ids=["nothing", "a mode", "a tier", "neither can be read"],
)
def test_annotations_say_how_close_pods_have_to_be(notes: dict[str, str], wanted: NetworkTopology | None) -> None:
    assert group_of_pod(pod(**notes), "g", {}).network_topology == wanted
