"""The tour: every step opens its screen and says what to do there; steps that were made are marked."""

import re

from gpuconsole.ui.screens.base import ConsoleScreen
from gpuconsole.ui.screens.tour import STEPS
from tests.support.console_clusters import busy_org
from tests.support.console_stage import staged

CRUMBS = ("dashboard", "workloads", "ledger", "slots", "preemptions", "whatif", "submit", "dashboard")


async def test_the_tour_has_eight_steps_that_open_their_screens() -> None:
    async with staged(busy_org(), (80, 24)) as stage:
        opened = []
        for number, step in enumerate(STEPS):
            await stage.press(":")
            await stage.write("tour")
            await stage.press("enter")
            assert stage.text.count("✓") == number, "the steps that were made"
            assert step.question in stage.line("▌"), "the cursor is on the next step"
            await stage.press("enter")
            opened.append(stage.screen(ConsoleScreen).crumb())
            said = [note.message for note in stage.app._notifications][-1]
            assert said.startswith(f"{number + 1}/8 ")
            assert all(part in said for part in re.split(r"\{[\w.-]+\}", step.text))
            assert "{" not in said, "actions are named by their keys"
            await stage.press("escape")
            stage.app.clear_notifications()
        assert said.endswith("The tour is complete.")
        assert tuple(opened) == CRUMBS
