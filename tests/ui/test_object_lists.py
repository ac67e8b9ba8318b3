"""Lists of objects without a view of their own: opened by `:`, above the front screen, with the actions on objects."""

import logging
from typing import Any

import pytest
from msgspec.structs import replace

from gpuconsole.backends.base import Missing
from gpuconsole.insight.index.object_lists import check_rows, flavor_rows, listed_pods, user_of, user_rows
from gpuconsole.insight.index.quota_tree import QuotaUse
from gpuconsole.model.cluster import Namespace, Pod, PodPhase
from gpuconsole.model.commands import Delete
from gpuconsole.model.devices import described
from gpuconsole.model.manifests import decode_object
from gpuconsole.model.objects import Object
from gpuconsole.model.pod_template import PodSet, PodTemplate
from gpuconsole.model.prices import Prices
from gpuconsole.model.queues import AdmissionCheck, Cohort, ResourceFlavor
from gpuconsole.model.workloads import CheckState, Condition, Workload
from gpuconsole.services.console import Console
from gpuconsole.ui.screens.object_lists import FLAVORS, LISTS, ObjectListScreen, list_screen
from gpuconsole.ui.screens.pods import LogScreen
from gpuconsole.ui.screens.workloads import WorkloadDetailScreen
from gpuconsole.ui.widgets.dialogs import Confirm
from gpuconsole.ui.widgets.grid import Grid
from tests.support.console_clusters import (
    FLAVOR,
    HOSTILE,
    NOW,
    job_of,
    org_cohort,
    recorded,
    running,
    snapshot_of,
    waiting,
)
from tests.support.console_stage import SIZES, staged
from tests.support.live_console import FakeCluster, live
from tests.support.scripted_live_backend import Elsewhere

BOB = {"user": "bob"}


def broken_pod() -> Pod:
    return Pod(
        namespace="dev",
        name="crash-0",
        created=NOW - 60_000_000,
        phase=PodPhase.RUNNING,
        unready=True,
        restarts=7,
        node="node-1",
        reason="CrashLoopBackOff",
    )


def test_the_restarts_of_all_containers_are_counted() -> None:
    status = {"containerStatuses": [{"restartCount": 2}, {"restartCount": 3}], "initContainerStatuses": [{}]}
    manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "status": status}
    pod = decode_object(manifest, now=NOW)
    assert isinstance(pod, Pod)
    assert pod.restarts == 5


def test_pods_are_listed_by_namespace_and_name_those_that_ended_last() -> None:
    done = replace(broken_pod(), name="a-done", namespace="a", phase=PodPhase.SUCCEEDED)
    snapshot = snapshot_of([done, broken_pod(), *org_cohort()])
    names = ["dev/crash-0", "prod/serve-0", "research/embed-0", "research/llm-ft-0", "research/rlhf-0", "a/a-done"]
    assert [pod.key for pod in listed_pods(snapshot)] == names
    assert [pod.key for pod in listed_pods(snapshot, {"prod", "dev"})] == ["dev/crash-0", "prod/serve-0"]


@pytest.mark.parametrize("size", [*SIZES, (160, 50)], ids=str)
async def test_pods_are_a_list_with_filter_sort_and_the_way_back(size: tuple[int, int]) -> None:
    async with staged(recorded([broken_pod(), *org_cohort()]), size) as stage:
        await stage.press("3", "j")
        below = stage.line("▌")
        await stage.write(":po")
        await stage.press("enter")
        stage.screen(ObjectListScreen)
        assert stage.line("serve-0").split()[0:3] == ["serve-0", "prod", "●"]
        assert "✖" not in stage.line("crash-0")
        if size[0] >= 120:
            assert stage.line("crash-0").split()[1:7] == ["crash-0", "dev", "●", "Running", "no", "7"]
            assert stage.line(" rlhf-0").split()[-5:] == ["node-3", "6", "research/rlhf", "cq-research", "30m"]
        await stage.press("!")
        assert [line.split()[1] for line in stage.lines if " Running" in line] == ["crash-0"]
        await stage.press("!", "U")
        assert stage.line("▌").split()[1] == "serve-0", "it has the most GPUs"
        await stage.press("escape")
        assert stage.line("▌") == below


async def test_the_prompt_takes_namespaces_and_a_filter_for_a_list() -> None:
    async with staged(recorded(org_cohort())) as stage:
        await stage.write(":pods research /llm")
        await stage.press("enter")
        grid = stage.screen(ObjectListScreen).grid
        assert grid is not None
        assert [pod.key for pod in grid.rows] == ["research/llm-ft-0"]
        assert [pod.key for pod in grid._rows.all] == ["research/embed-0", "research/llm-ft-0", "research/rlhf-0"]


async def test_a_pod_is_described_explained_read_and_deleted_by_its_typed_name() -> None:
    cluster = FakeCluster()
    async with staged(live(cluster)) as stage:
        await stage.write(":pods")
        await stage.press("enter", "enter")
        assert "Pod prod/serve-0" in stage.text
        await stage.press("escape", "l")
        stage.screen(LogScreen)
        assert cluster.at.opened[0].pods == ("prod/serve-0",)
        await stage.press("escape", "x")
        assert stage.screen(WorkloadDetailScreen).crumb() == "prod/serve"
        await stage.press("escape", "ctrl+x", "enter")
        stage.screen(Confirm)
        assert cluster.sent == []
        await stage.write("prod/serve-0")
        await stage.press("enter", "enter")
    assert cluster.sent == [Delete("pods", "prod/serve-0")]


def test_a_flavor_has_the_quota_of_all_queues_its_nodes_and_its_workloads() -> None:
    (row,) = flavor_rows(snapshot_of(org_cohort()))
    quota = QuotaUse(flavor=FLAVOR, nominal=24, used=20, borrowed=4, lent=4, available=4)
    assert (row.name, row.quota, described(row.devices)) == (FLAVOR, quota, "24 GPUs")
    assert row.nodes == ("node-1", "node-2", "node-3")
    assert row.queues == ("cq-prod", "cq-research")
    assert row.workloads == ("prod/serve", "research/embed", "research/llm-ft", "research/rlhf")


def test_a_flavor_that_only_a_quota_names_is_listed_as_a_problem() -> None:
    snapshot = snapshot_of([thing for thing in org_cohort() if not isinstance(thing, ResourceFlavor)])
    (row,) = flavor_rows(snapshot)
    assert (row.flavor, row.queues, FLAVORS.fault(row), FLAVORS.about(row)) == (
        None,
        ("cq-prod", "cq-research"),
        True,
        None,
    )


def test_checks_are_listed_open_ones_first_by_wait_and_a_check_without_workloads_last() -> None:
    def checked(name: str, state: str, since: int, **more: Any) -> Workload:
        return replace(waiting(name, 1), checks=(CheckState(name="budget", state=state, since=NOW - since),), **more)

    finished = (Condition("Finished", True, "Succeeded", "", NOW),)
    snapshot = snapshot_of(
        [
            AdmissionCheck(name="budget", controller="example.com/budget"),
            AdmissionCheck(name="other", controller="example.com/other", active=False),
            checked("passed", "Ready", 90),
            checked("new", "Pending", 10),
            checked("old", "Retry", 20),
            checked("gone", "Pending", 30, conditions=finished),
        ]
    )
    assert [(row.name, row.workload) for row in check_rows(snapshot)] == [
        ("budget", "research/old"),
        ("budget", "research/new"),
        ("budget", "research/passed"),
        ("other", ""),
    ]
    assert [row.workload for row in check_rows(snapshot, {"prod"})] == [""] * 2


@pytest.mark.parametrize("size", [(80, 24), (160, 50)], ids=str)
async def test_flavors_cohorts_and_checks_tell_loading_empty_and_what_they_have(size: tuple[int, int]) -> None:
    checks = (CheckState(name="budget", state="Retry", message="no \x1b[31mmoney", since=NOW),)
    things = [
        AdmissionCheck(name="budget", controller="example.com/budget"),
        *org_cohort(),
        replace(waiting("dear", 2), checks=checks),
    ]
    async with staged(recorded(things), size) as stage:
        for name, line in (
            ("fl", "▌ a100-80gb 24 20 4 4 3"),
            ("cohorts", "▌ org-cohort 24 20 4 4"),
            ("checks", "▌ budget ⏸ Retry research/dear"),
        ):
            await stage.write(f":{name}")
            await stage.press("enter")
            assert " ".join(stage.line("▌").split()).startswith(line)
        assert "\x1b" not in stage.text
        await stage.press("enter", "escape", "escape", "escape")
        assert stage.app.way == ["dashboard", "flavors"]
    async with staged(recorded([Namespace(name="alone")]), size) as stage:
        for name, text in (
            ("po", "No pods. Press n to submit a job, 0 for all namespaces."),
            ("fl", "No ResourceFlavors in this cluster."),
            ("cohorts", "No Cohorts in this cluster, and no ClusterQueue names one."),
            ("checks", "No AdmissionChecks in this cluster."),
        ):
            await stage.write(f":{name}")
            await stage.press("enter")
            assert text in stage.text


async def test_one_key_shows_the_owners_of_any_object_and_enter_and_escape_go_there_and_back() -> None:
    async with staged(recorded(org_cohort())) as stage:
        await stage.press("3")
        stage.app.go("workloads", at="research/rlhf")
        await stage.settle()
        await stage.press("o")
        assert stage.app.way == ["workloads", "owners research/rlhf"]
        assert stage.line("▌").split()[1:4] == ["research/rlhf", "Workload", "running"]
        await stage.press("j", "enter")
        assert stage.app.way[-1] == "describe research/rlhf-0"
        await stage.press("escape", "j", "enter")
        assert stage.app.way[-1] == "node-3"
        await stage.press("o")
        assert stage.line("▌").split()[1:4] == ["node-3", "Node", "Ready"]
        await stage.press("escape", "escape")
        assert stage.line("▌").split()[1:3] == ["GPU", "0-1"]
        await stage.press("g", "enter")
        assert stage.app.way[-1] == "describe org-cohort"
        await stage.press("escape", "escape", "2", "j", "o")
        assert stage.line("▌").split()[1:3] == ["cq-prod", "ClusterQueue"]
        await stage.press("escape", "4", "o")
        assert stage.line("▌").split()[1] == "node-1"


def test_users_are_named_by_the_label_of_the_workload_its_job_or_pods_else_by_the_annotation_of_the_owner() -> None:
    job = job_of(waiting("b", 1))
    labelled = PodSet(template=PodTemplate(labels={"user": "cyd"}))
    workloads = [
        replace(waiting("a", 1), labels={"user": "ada"}, annotations={"user": "eve"}),
        waiting("b", 1),
        replace(waiting("c", 1), pod_sets=(labelled,)),
        waiting("d", 1),
        waiting("e", 1),
    ]
    owners = [replace(job, labels={"user": "bob"}), replace(job_of(waiting("d", 1)), annotations={"user": "dan"})]
    snapshot = snapshot_of([*workloads, *owners])
    assert [user_of(snapshot, one, "user") for one in workloads] == ["ada", "bob", "cyd", "dan", ""]


def test_users_have_what_their_workloads_hold_request_and_cost() -> None:
    mine = [replace(one, labels={"user": "ada"}) for one in (running("x", 4), waiting("y", 2), running("z", 1))]
    stopped = replace(waiting("s", 1), labels={"user": "ada"}, active=False)
    prices = Prices(gpu_hour={}, other=2.0)
    rows = user_rows(snapshot_of([*org_cohort(), *mine, stopped]), "user", prices)
    assert [(row.name, row.running, row.pending) for row in rows] == [("", 4, 1), ("ada", 2, 1)]
    assert (described(rows[1].used), described(rows[1].wanted), rows[1].hourly) == ("5 GPUs", "2 GPUs", 10.0)


@pytest.mark.parametrize("size", [(80, 24), (160, 50)], ids=str)
async def test_users_lead_to_their_workloads_and_workloads_are_filtered_by_user(size: tuple[int, int]) -> None:
    mine = [replace(running("x", 4), labels={"user": "[red]ada[/red]\x1b"}), replace(waiting("y", 2), labels=BOB)]
    async with staged(recorded([*org_cohort(), *mine]), size) as stage:
        await stage.write(":users")
        await stage.press("enter", "j", "enter")
        assert stage.line("▌").split()[1:] == ["[red]ada[/red]\ufffd", "User", "–"]
        await stage.press("j", "enter")
        assert stage.app.way[-1] == "research/x"
        await stage.press("escape", "escape")
        assert stage.line("▌").split()[1] == "[red]ada[/red]\ufffd"
        await stage.press("escape", "3", "slash")
        await stage.write("user=bob")
        await stage.press("enter")
        grid = stage.app.screen.query_one(Grid)
        assert [row.key for row in grid.rows] == ["research/y"]


@pytest.mark.parametrize("size", [(80, 24), (160, 50)], ids=str)
async def test_the_pods_of_a_node_are_on_its_page_and_enter_opens_one(size: tuple[int, int]) -> None:
    async with staged(recorded(org_cohort()), size) as stage:
        await stage.press("4", "right", "enter")
        assert stage.app.way[-1] == "node-2"
        await stage.press("tab", "j")
        assert stage.line("▌llm").strip() == stage.line("▌embed").strip() == ""
        assert [line.split()[1] for line in stage.lines if "▌" in line and "Running" in line] == ["llm-ft-0"]
        await stage.press("enter")
        assert stage.app.way[-1] == "describe research/llm-ft-0"
        await stage.press("escape", "shift+tab", "enter")
        assert stage.app.way[-1] == "research/llm-ft"


async def test_what_may_not_be_listed_is_called_forbidden_and_what_is_not_read_yet_is_not_called_empty() -> None:
    cluster = Elsewhere((), NOW)
    cluster.missing = tuple(Missing("list", resource) for resource in ("pods", "admissionchecks", "cohorts"))
    console = Console(cluster)
    console.tick(0)
    async with staged(console) as stage:
        for name, resource in (("pods", "pods"), ("checks", "admissionchecks"), ("cohorts", "cohorts")):
            stage.app.open(list_screen(name))
            await stage.settle()
            assert f"⊘ Forbidden: cannot list {resource}" in stage.text
        cluster.missing, cluster.loading = (), True
        console.tick(0)
        await stage.settle()
        await stage.press("ctrl+r")
        assert "No Cohorts" not in stage.text


async def test_hostile_names_reach_no_list_page_or_tree_as_control_characters(
    caplog: pytest.LogCaptureFixture,
) -> None:
    things: list[Object] = list(org_cohort())
    for number, text in enumerate(HOSTILE):
        name = f"{text}-{number}"
        checks = (CheckState(name=name, state=text, message=text),)
        held = replace(running(name, 1), labels={"user": text}, checks=checks)
        pod = Pod(namespace=text, name=name, node=text, workload=held.key, reason=text, phase=PodPhase.PENDING)
        things += [AdmissionCheck(name=name, controller=text), Cohort(name=name), ResourceFlavor(name=name), held, pod]
    async with staged(recorded(things), (160, 50)) as stage:
        for name in LISTS:
            stage.app.open(list_screen(name))
            await stage.press("G")
            drawn = stage.lines
            for key in ("o", "escape", "enter", "escape"):
                await stage.press(key)
                drawn += stage.lines
            assert [line for line in drawn if not line.isprintable()] == []
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []
