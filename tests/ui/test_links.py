"""Names in a text lead to their objects: by the cursor and Enter, or by a click; Esc comes back."""

import pytest
from msgspec.structs import replace

from gpuconsole.model.cluster import Pod, PodPhase
from gpuconsole.model.job import Job
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.ui.describe import describe, find_named, linked
from gpuconsole.ui.paint import Painted, plain
from gpuconsole.ui.widgets.textpane import Link, Target, TextPane, text_line
from tests.support.console_clusters import HOSTILE, history, org_cohort, recorded, running, snapshot_of, waiting
from tests.support.console_stage import staged


def names(lines: list[Painted]) -> list[tuple[str, Target]]:
    links = [line for line in lines if isinstance(line, Link)]
    return [(line[index][0], target) for line in links for index, target in line.names.values()]


def described(table: str, key: str, snapshot: Snapshot | None = None) -> list[tuple[str, Target]]:
    snapshot = snapshot or snapshot_of(org_cohort(), history())
    return names(linked(snapshot, describe(snapshot, table, key) or (), key))


def test_the_fields_of_a_pod_lead_to_its_node_its_workload_and_its_job() -> None:
    assert described("pods", "research/rlhf-0")[:3] == [
        ("node-3", Target("nodes", "node-3")),
        ("research/rlhf", Target("workloads", "research/rlhf")),
        ("Job/research/rlhf", Target("jobs", "Job/research/rlhf")),
    ]


def test_a_node_leads_to_its_pods_and_a_queue_to_its_cohort_and_flavors() -> None:
    pods = [target for _, target in described("nodes", "node-2")]
    assert pods == [Target("pods", "research/llm-ft-0"), Target("pods", "research/embed-0")]
    assert described("cluster_queues", "cq-prod")[:2] == [
        ("org-cohort", Target("cohorts", "org-cohort")),
        ("a100-80gb", Target("flavors", "a100-80gb")),
    ]


def test_the_text_stays_the_same() -> None:
    snapshot = snapshot_of(org_cohort(), history())
    for table, key in (("pods", "research/rlhf-0"), ("workloads", "research/rlhf-2"), ("nodes", "node-1")):
        lines = describe(snapshot, table, key) or []
        assert list(map(plain, linked(snapshot, lines, key))) == list(map(plain, lines))


def test_a_workload_is_found_by_the_name_of_its_job_and_a_field_tells_which_of_equal_names_is_meant() -> None:
    made = replace(waiting("job-tune-0a1b2", 2), owner="Job/research/tune")
    snapshot = snapshot_of([*org_cohort(), made, Job(namespace="research", name="tune"), Job(name="free")])
    assert find_named(snapshot, "research/tune") == Target("workloads", "research/job-tune-0a1b2")
    assert find_named(snapshot, "default/free") == Target("jobs", "Job/default/free")
    assert find_named(snapshot, "rlhf-0", "research") == Target("pods", "research/rlhf-0")
    assert find_named(snapshot, "rlhf-0") is None
    same = replace(running("lq-prod", 1, "prod"))
    twice = snapshot_of([*org_cohort(), same])
    assert find_named(twice, "prod/lq-prod") == Target("workloads", "prod/lq-prod")
    assert find_named(twice, "prod/lq-prod", table="local_queues") == Target("local_queues", "prod/lq-prod")


def test_values_of_labels_parts_of_words_and_the_object_itself_are_no_links() -> None:
    snapshot = snapshot_of(org_cohort())
    texts = ("pool=node-1", "my-node-1", "node-1x", "node-1=y", "a/node-1", "node-2")
    assert [names(linked(snapshot, [text_line(text)], "node-2")) for text in texts] == [[]] * 6
    assert names(linked(snapshot, [text_line("on node-1, then (node-3).")])) == [
        ("node-1", Target("nodes", "node-1")),
        ("node-3", Target("nodes", "node-3")),
    ]


def test_hostile_text_is_left_as_it_is() -> None:
    pods = [Pod(name=text, node=text, phase=PodPhase.RUNNING, message=text) for text in HOSTILE if text]
    snapshot = snapshot_of(pods)
    for pod in pods:
        lines = describe(snapshot, "pods", pod.key) or []
        assert list(map(plain, linked(snapshot, lines, pod.key))) == list(map(plain, lines))


@pytest.mark.parametrize("size", [(80, 24), (160, 50)], ids=str)
async def test_the_cursor_goes_from_name_to_name_and_enter_and_escape_go_there_and_back(size: tuple[int, int]) -> None:
    async with staged(recorded(org_cohort(), history()), size) as stage:
        stage.app.go("workloads", at="research/rlhf")
        await stage.settle()
        await stage.press("enter", "tab", "j")
        assert "▌rlhf-0" in stage.text
        assert " ⏎ open" in stage.lines[-1]
        await stage.press("enter")
        assert stage.app.way == ["workloads", "research/rlhf", "describe research/rlhf-0"]
        await stage.press("j")
        assert "▌node-3" in stage.text
        await stage.press("enter", "escape")
        assert "▌node-3" in stage.text, "the cursor is on the same name"
        await stage.press("j", "enter")
        assert stage.app.way == ["workloads", "research/rlhf"], "a page that is open already is gone back to"


async def test_a_click_on_a_name_opens_its_object_and_beside_it_opens_nothing() -> None:
    async with staged(recorded(org_cohort())) as stage:
        await stage.write(":po")
        await stage.press("enter", "enter")
        pane = stage.app.screen.query_one(TextPane)
        place = next((y, line.index("node-1")) for y, line in enumerate(stage.lines) if "node-1" in line)
        offset = (place[1] - pane.region.x, place[0] - pane.region.y)
        await stage._pilot.click(TextPane, offset=(offset[0] - 3, offset[1]))
        await stage.settle()
        assert stage.app.way[-1] == "describe prod/serve-0"
        await stage._pilot.click(TextPane, offset=(offset[0] + 2, offset[1]))
        await stage.settle()
        assert stage.app.way[-1] == "node-1"
