"""The submit form, by keyboard alone: choose, size, see what would come of it, submit, and watch it being admitted."""

import pytest

from gpuconsole.insight.index.available_quota import headroom
from gpuconsole.model.clock import HOUR
from gpuconsole.model.cluster import Namespace
from gpuconsole.model.objects import Object
from gpuconsole.model.queues import LocalQueue, WorkloadPriorityClass
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.ui.job_templates import BY_ID, JobTemplateRequest
from gpuconsole.ui.paint import plain
from gpuconsole.ui.screens import submit as submit_form
from gpuconsole.ui.screens.submit import SubmitScreen
from gpuconsole.ui.textual_patches import ChoiceOverlay
from gpuconsole.ui.widgets.dialogs import ChoiceDialog, Confirm
from gpuconsole.ui.widgets.form import FormField, Picker
from gpuconsole.ui.widgets.textpane import TextPane
from tests.support.console_clusters import HOSTILE, busy_org, org_cohort, org_jobs, recorded, simulated, snapshot_of
from tests.support.console_stage import SIZES, Stage, staged

DEBOUNCE = 0.3


def values(stage: Stage) -> dict[str, str]:
    return stage.screen(SubmitScreen).form.values


def admitted(snapshot: Snapshot) -> list[str]:
    return [workload.owner for workload in snapshot.workloads.all() if workload.admitted]


@pytest.mark.parametrize("size", SIZES, ids=str)
async def test_a_job_is_submitted_by_keyboard_only_and_admitted(size: tuple[int, int]) -> None:
    async with staged(simulated(org_jobs()), size) as stage:
        await stage.press("8", "right")
        assert values(stage)["template"] == "training"
        await stage.press("down", "right", "down", "down", "ctrl+u")
        await stage.write("my-train")
        await stage.press("down", "right", "down", "ctrl+u")
        await stage.write("4")
        await stage.wait(DEBOUNCE)
        assert values(stage) == {
            "template": "training",
            "namespace": "research",
            "queue": "lq-research",
            "name": "my-train",
            "priority": "production",
            "gpus": "4",
            "pods": "1",
            "duration": "8h",
            "checkpoint": "30m",
        }
        assert "✓ 4 GPUs fit available quota now" in stage.text
        await stage.press("ctrl+s")
        stage.screen(Confirm)
        assert "1 pod × 4 GPUs, queue lq-research, priority production" in stage.text
        await stage.press("enter")
        await stage.tick(times=2)
        assert admitted(stage.app.cluster.snapshot) == []
        await stage.press("ctrl+s", "tab", "enter")
        await stage.tick(times=5)
        assert admitted(stage.app.cluster.snapshot) == ["Job/research/my-train"]
        assert "● running research/" in stage.text
        assert values(stage)["name"] == "training-1"
        await stage.press("ctrl+s", "tab", "enter")
        assert values(stage)["name"] == "training-2"


async def test_what_is_wrong_is_said_at_the_field_while_typing_and_cannot_be_sent() -> None:
    async with staged(simulated(org_jobs())) as stage:
        await stage.press("8", "down", "down", "down", "ctrl+u")
        await stage.write("No Good")
        await stage.wait(DEBOUNCE)
        assert "✖ only a-z, 0-9 and -" in stage.line(" Name ")
        await stage.press("ctrl+s")
        stage.screen(SubmitScreen)
        await stage.press("ctrl+u")
        await stage.write("good")
        await stage.wait(DEBOUNCE)
        assert "✖" not in stage.text


async def test_the_preview_is_the_yaml_that_would_be_sent() -> None:
    async with staged(simulated(org_jobs()), (80, 24)) as stage:
        await stage.press("8")
        await stage.wait(DEBOUNCE)
        assert "apiVersion" not in stage.text
        await stage.press("ctrl+y")
        preview = stage.screen(SubmitScreen).query_one("#preview", TextPane).text
        assert "kueue.x-k8s.io/queue-name: lq-prod" in preview
        assert "apiVersion: batch/v1" in stage.text
        await stage.press("ctrl+y")
        assert "Template" in stage.text


async def test_a_template_is_chosen_from_a_list_and_brings_its_sizes() -> None:
    async with staged(simulated(org_jobs())) as stage:
        await stage.press("8", "ctrl+t")
        stage.screen(ChoiceDialog)
        await stage.press("3")
        assert (values(stage)["template"], values(stage)["gpus"], values(stage)["pods"]) == ("pytorch", "8", "4")
        await stage.wait(DEBOUNCE)
        assert "kind: PyTorchJob" in stage.screen(SubmitScreen).query_one("#preview", TextPane).text
        verdict = stage.screen(SubmitScreen).query_one("#verdict", TextPane).text
        assert "requests 32 GPUs; the maximum capacity of cq-prod is 16" in verdict


async def test_the_label_of_the_focused_field_and_no_other_is_highlighted() -> None:
    async with staged(simulated(org_jobs())) as stage:
        await stage.press("8")
        seen = []
        for key in ("down", "down", "tab", "shift+tab", "up", "up", "enter", "escape"):
            await stage.press(key)
            fields = stage.screen(SubmitScreen).query(FormField)
            bold = [field.control.id for field in fields if field.query_one(".field--label").rich_style.bold]
            seen.append((key, bold))
        assert seen == [
            ("down", ["namespace"]),
            ("down", ["queue"]),
            ("tab", ["name"]),
            ("shift+tab", ["queue"]),
            ("up", ["namespace"]),
            ("up", ["template"]),
            ("enter", ["template"]),
            ("escape", []),
        ]


async def test_a_page_in_a_list_that_is_not_drawn_yet_fails_nothing() -> None:
    async with staged(simulated(org_jobs())) as stage:
        await stage.press("8")
        picker = stage.screen(SubmitScreen).query(Picker).first()
        opened = picker.query_one(ChoiceOverlay)
        picker.action_show_overlay()
        opened._move_page(-1)
        opened._move_page(1)
        assert opened.highlighted == 0
        await stage.press("pagedown")
        assert (opened.highlighted or 0) > 1


async def test_a_running_workload_is_duplicated_into_the_form() -> None:
    async with staged(busy_org()) as stage:
        await stage.press("3", "slash")
        await stage.write("rlhf")
        await stage.press("enter", "D")
        assert values(stage) == {
            "template": "training",
            "namespace": "research",
            "queue": "lq-research",
            "name": "training-1",
            "priority": "research-default",
            "gpus": "6",
            "pods": "1",
            "duration": "4h",
            "checkpoint": "",
        }


async def test_escape_leaves_the_field_so_that_keys_lead_to_screens_again() -> None:
    async with staged(simulated(org_jobs())) as stage:
        await stage.press("8", "down", "down", "down", "3")
        assert values(stage)["name"].endswith("3")
        await stage.press("escape", "3")
        assert stage.app.view == "workloads"


PROSPECTS = {
    "what fits now": (4, 1, "lq-research", ["✓ 4 GPUs fit available quota now"]),
    "one GPU that fits": (1, 1, "lq-research", ["✓ 1 GPU fits available quota now"]),
    "what does not fit now waits or preempts": (
        8,
        1,
        "lq-research",
        ["◐ 8 GPUs do not fit available quota: pending, or preempts (ctrl+o: what-if)"],
    ),
    "what could never fit": (
        8,
        3,
        "lq-research",
        ["⚠ requests 24 GPUs; the maximum capacity of cq-research is 16"],
    ),
    "what no node could hold": (
        16,
        1,
        "lq-research",
        [
            "⚠ no node has 16 GPUs: the largest has 8",
            "◐ 16 GPUs do not fit available quota: pending, or preempts (ctrl+o: what-if)",
        ],
    ),
    "what no queue manages": (4, 1, "", ["⏸ no queue: kube-scheduler places its pods at once, by priority"]),
}


@pytest.mark.parametrize("case", PROSPECTS)
def test_prospects(case: str) -> None:
    gpus, pods, queue, want = PROSPECTS[case]
    snapshot = snapshot_of(org_cohort())
    room = next((room for room in headroom(snapshot) if room.name == queue), None)
    lines = submit_form.request_prospects(
        snapshot, JobTemplateRequest(namespace="research", name="n", queue=queue, gpus=gpus, pods=pods), room
    )
    assert [plain(row) for row in lines if not plain(row).startswith("  ")] == want


WRONG = {
    "": "required",
    "-a": "only a-z, 0-9 and -, at most 63 characters",
    "a" * 64: "only a-z, 0-9 and -, at most 63 characters",
    "A": "only a-z, 0-9 and -, at most 63 characters",
}


def fields(**changes: str) -> dict[str, str]:
    sizes = submit_form.defaults(BY_ID["training"])
    return {"template": "training", "namespace": "n", "queue": "q", "name": "a", "priority": "", **sizes, **changes}


@pytest.mark.parametrize("name", WRONG)
def test_names_that_kubernetes_would_refuse(name: str) -> None:
    assert submit_form.read(fields(name=name))[1] == {"name": WRONG[name]}


def test_numbers_and_durations_are_read() -> None:
    request, problems = submit_form.read(fields(gpus="x", pods="0", duration="soon", checkpoint="0s"))
    assert problems == {
        "gpus": "0 to 100,000",
        "pods": "1 to 10,000",
        "duration": "use 30m, 1h30m or 2d",
        "checkpoint": "must be > 0",
    }
    request, problems = submit_form.read(fields(gpus="2", pods="3", duration="2h", checkpoint=""))
    assert (request.gpus, request.pods, request.duration, request.checkpoint, problems) == (2, 3, 2 * HOUR, None, {})


@pytest.mark.parametrize("name", [name for name in HOSTILE if name])
async def test_hostile_names_reach_no_screen_raw(name: str) -> None:
    objects: list[Object] = [
        *org_jobs(),
        Namespace(name=name),
        LocalQueue(namespace=name, name=name, cluster_queue=name),
        WorkloadPriorityClass(name=name, value=1),
    ]
    async with staged(recorded(objects), (80, 24)) as stage:
        await stage.press("8", "down")
        for _ in range(3):
            await stage.press("right")
            await stage.wait(DEBOUNCE)
            assert all(line.isprintable() for line in stage.lines)
        for keys in ("enter", "escape", "down enter", "escape ctrl+y"):
            await stage.press(*keys.split())
            assert all(line.isprintable() for line in stage.lines), keys
