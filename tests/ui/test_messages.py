"""Messages: the line above the footer, how long each stays, and the log of all."""

from gpuconsole.ui.app import ConsoleApp
from gpuconsole.ui.screens.messages import MessagesScreen
from gpuconsole.ui.widgets.grid import Grid
from tests.support.console_clusters import busy_org
from tests.support.console_stage import Stage


async def test_a_message_stands_above_the_footer_and_hides_nothing_until_it_is_over() -> None:
    app = ConsoleApp(busy_org(), repaint=0)
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        stage = Stage(app, pilot)
        await stage.settle()
        await stage.press("3")
        before = stage.lines
        for words in ("first", "second", "again", "fourth", "again", "last"):
            app.flash(words)
            await pilot.pause()
        await stage.settle()
        assert [one.message for one in app._notifications] == ["fourth", "again", "last"]
        assert stage.lines[-2:] == [" · last", before[-1]]
        rows = [line for line in before if "/" in line and "pending" in line]
        assert [line for line in rows if line not in stage.lines] == []

        app.flash("x" * 200, "warning")
        await stage.settle()
        assert [line[:3] for line in stage.lines[-4:-1]] == [" ⚠ ", "   ", "   "]

        # It follows to the screen that is opened next.
        await stage.press("enter")
        assert stage.lines[-4][:4] == " ⚠ x"
        await stage.press("escape")
        for one in list(app._notifications):
            one.timeout = -1.0
        app._refresh_notifications()
        await stage.settle()
        assert stage.lines[-3:] == before[-3:]


async def test_an_error_stays_until_a_key_is_pressed_later_and_the_log_keeps_all() -> None:
    app = ConsoleApp(busy_org(), repaint=0)
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        stage = Stage(app, pilot)
        await stage.settle()
        app.flash("something\x1b]0;failed", "error")
        app.flash("Something else happened", "warning")
        await stage.settle()
        await stage.press("3", "j")
        assert [one.severity for one in app._notifications] == ["error", "warning"]
        for one in list(app._notifications):
            one.raised_at -= 60
        app._refresh_notifications()
        await stage.settle()
        assert "✖ something" in stage.lines[-2]
        await stage.press("j")
        assert list(app._notifications) == []

        await stage.press("colon")
        await stage.write("messages")
        await stage.press("enter")
        grid = stage.screen(MessagesScreen).query_one(Grid)
        assert [(one.severity, one.text) for one in grid.rows] == [
            ("warning", "Something else happened"),
            ("error", "something\ufffd]0;failed"),
        ]
        assert stage.text.count("Something else happened") == 2
        await stage.press("escape")
        assert app.view == "workloads"
