"""A console in a browser uses no files, programs or other clusters of the machine on which it runs."""

from pathlib import Path

import pytest

from gpuconsole.errors import ConsoleError
from gpuconsole.ui.actions import BY_ID
from gpuconsole.ui.screens.base import LOCAL_ACTIONS, ConsoleScreen
from gpuconsole.ui.screens.change_screen import ChangeDialogs
from tests.support.console_clusters import busy_org
from tests.support.console_stage import staged

REFUSED = "not in a browser"


async def test_what_leaves_the_cluster_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    secret = tmp_path / "secret.yaml"
    secret.write_text("secret: 1")
    monkeypatch.chdir(tmp_path)
    async with staged(busy_org()) as stage:
        screen = stage.screen(ConsoleScreen)
        assert not any(screen.refusal(BY_ID[id]).startswith(REFUSED) for id in LOCAL_ACTIONS)
        monkeypatch.setenv("TEXTUAL_DRIVER", "browser")
        assert all(screen.refusal(BY_ID[id]).startswith(REFUSED) for id in LOCAL_ACTIONS)
        for line in ("export x.csv", "apply secret.yaml", "drills secret.yaml", "ctx other", "wl @other"):
            await stage.press(":")
            await stage.write(line)
            await stage.press("enter")
            assert REFUSED in [note.message for note in stage.app._notifications][-1], line
        assert sorted(tmp_path.iterdir()) == [secret]
        await stage.press("7")
        with pytest.raises(ConsoleError, match=REFUSED):
            ChangeDialogs(stage.screen(ConsoleScreen), print)._read_file(str(secret))
