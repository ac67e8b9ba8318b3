"""Opening and closing queues: one queue, and those below it."""

import pytest

from gpuconsole.model.volcano import JobAction, VolcanoQueue
from gpuconsole.scheduling.volcano.jobs.states import CLOSED_BY_PARENT, next_queue_state, queue_command, queue_refusal

OPEN, CLOSE, SYNC = JobAction.OPEN_QUEUE, JobAction.CLOSE_QUEUE, JobAction.SYNC_QUEUE


@pytest.mark.parametrize(
    ("state", "action", "if_busy", "if_empty"),
    [
        ("", SYNC, "Open", "Open"),
        ("Open", OPEN, "Open", "Open"),
        ("Open", CLOSE, "Closing", "Closed"),
        ("Closing", OPEN, "Open", "Open"),
        ("Closing", CLOSE, "Closing", "Closed"),
        ("Closing", SYNC, "Closing", "Closed"),
        ("Closed", OPEN, "Open", "Open"),
        ("Closed", CLOSE, "Closed", "Closed"),
        ("Closed", SYNC, "Closed", "Closed"),
        ("Unknown", OPEN, "Open", "Open"),
        ("Unknown", CLOSE, "Closing", "Closed"),
        ("Unknown", SYNC, "Unknown", "Unknown"),
    ],
)
def test_a_queue_goes_from_state_to_state(state: str, action: JobAction, if_busy: str, if_empty: str) -> None:
    assert (next_queue_state(state, action, True), next_queue_state(state, action, False)) == (if_busy, if_empty)


def tree(**states: str) -> dict[str, VolcanoQueue]:
    parents = {"org": "root", "team": "org", "lab": "org", "cell": "lab"}
    return {name: VolcanoQueue(name=name, parent=parents.get(name, ""), state=state) for name, state in states.items()}


def states(changed: list[VolcanoQueue]) -> dict[str, tuple[str, str]]:
    return {queue.name: (queue.state, queue.annotations.get(CLOSED_BY_PARENT, "")) for queue in changed}


def test_queues_below_close_with_their_parent_and_only_they_open_with_it() -> None:
    queues = tree(org="Open", team="Open", lab="Open", cell="Closed")
    shut = queue_command("org", CLOSE, queues, {"team"})
    assert states(shut) == {"org": ("Closed", ""), "lab": ("Closed", "true"), "team": ("Closing", "true")}
    after = {**queues, **{queue.name: queue for queue in shut}}
    opened = queue_command("org", OPEN, after, {"team"})
    assert states(opened) == {"org": ("Open", ""), "lab": ("Open", "false"), "team": ("Open", "false")}


def test_a_queue_does_not_open_below_one_that_is_shut() -> None:
    queues = tree(org="Closing", team="Closed")
    assert queue_refusal(queues["team"], OPEN, queues) == (
        "Failed to open queue team because its parent queue org is closing or closed. Open the parent queue first."
    )
    assert queue_command("team", OPEN, queues, ()) == []
    assert queue_refusal(queues["org"], OPEN, queues) == ""


def test_the_root_stays_open() -> None:
    queues = tree(root="Open", org="Open")
    assert queue_refusal(queues["root"], CLOSE, queues) == "Root queue cannot be closed"
    assert queue_command("root", CLOSE, queues, ()) == []
