"""The alerts screen lists the alerts of the user's rules, and silences them."""

from pathlib import Path

from gpuconsole.cli.alerts import evaluate_rules
from gpuconsole.config import AlertSettings, Config
from gpuconsole.ui.screens.alerts import NO_RULES
from tests.support.console_clusters import busy_org
from tests.support.console_stage import staged

RULES = """
groups:
  - name: gpus
    rules:
      - alert: Busy
        expr: gpuconsole_gpus{state="allocated"} > 0
        labels: {severity: critical, team: "[bold]x"}
        annotations: {summary: "{{ $value }} GPUs of type {{ $labels.gpu_type }} are allocated"}
      - alert: Later
        expr: gpuconsole_cluster_loaded == 1
        for: 1h
"""


async def test_without_rules_the_screen_says_how_to_write_them() -> None:
    async with staged(busy_org(), (80, 24)) as stage:
        await stage.press("J")
        assert NO_RULES[:60] in stage.text


async def test_firing_alerts_are_announced_listed_and_silenced(tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(RULES)
    console = busy_org()
    settings = Config(state_dir=str(tmp_path), alerts=AlertSettings(rules=str(tmp_path / "rules.yaml")))
    evaluate_rules(console, settings)
    assert console.alerting is not None
    async with staged(console, (160, 50)) as stage:
        console.alerting.evaluate()
        await stage.settle()
        allocated = int(console.alerting.alerts[0].value)
        (announced,) = (note.message for note in stage.app._notifications)
        assert announced.startswith(f"⚠ Busy: {allocated} GPUs of type")
        await stage.tick()
        assert "⚠ 1 alert firing" in stage.lines[0]
        await stage.press("J")
        row = stage.line("⚠ firing")
        assert "critical" in row
        assert "team=[bold]x" in stage.text, "the whole labels are below the table"
        assert "◐ pending" in stage.line("Later")
        assert "1 firing, 0 silenced, 1 pending, 0 resolved · 2 rules" in stage.text
        await stage.press("Q")
        assert "⏸ silenced" in stage.line("Busy")
        await stage.tick()
        assert "alert" not in stage.lines[0]
        await stage.press("Q")
        assert "⚠ firing" in stage.line("critical")
