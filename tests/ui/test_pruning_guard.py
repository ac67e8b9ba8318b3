"""Screens that are left before they are made: nothing is looked up on them."""

from gpuconsole.ui.screens.nodes import NodesScreen
from tests.support.console_clusters import busy_org
from tests.support.console_stage import staged


async def test_a_console_that_ends_while_a_screen_is_made_ends_without_an_error() -> None:
    async with staged(busy_org()) as stage:
        pushed = stage.app.push_screen(NodesScreen())
        stage.app.exit()
        await pushed
    assert stage.app._exception is None
