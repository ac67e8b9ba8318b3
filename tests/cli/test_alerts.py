"""`gpuconsole alerts`: the alerts that rules raise in a cluster now."""

import json
from pathlib import Path

import pytest

from tests.support.command_line import Line

RULES = """\
groups:
  - name: gpus
    rules:
      - alert: Allocated
        expr: gpuconsole_gpus{state="allocated"} > 0
        for: 1h
        labels: {severity: warning}
        annotations: {summary: "{{ $value }} {{ $labels.gpu_type }} GPUs"}
      - alert: Never
        expr: gpuconsole_gpus > 1000
      - alert: Many
        expr: increase(gpuconsole_preemptions_total[1h]) > 20
      - alert: Misspelt
        expr: gpuconsole_gpu > 1
"""


def test_alerts_are_listed_as_text_and_as_json(gpuconsole: Line, tmp_path: Path) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text(RULES)
    text = gpuconsole("alerts", "three-nodes", "--until", "5m", "--rules", rules)
    heads, row, *skipped = text.lines
    many, misspelt = (
        "increase needs a console or a recorder that runs",
        "this cluster has no metric gpuconsole_gpu now",
    )
    assert skipped == [f"not evaluated: Many: {many}", f"not evaluated: Misspelt: {misspelt}"]
    assert heads.split() == ["SEVERITY", "ALERT", "VALUE", "SUMMARY"]
    assert row.split() == ["warning", "Allocated", "12", "12", "a100-80gb", "GPUs"]
    document = json.loads(gpuconsole("alerts", "three-nodes", "--until", "5m", "--rules", rules, "-o", "json").out)
    assert (document["kind"], document["version"]) == ("Alerts", 1)
    assert document["answer"] == {
        "rules": 4,
        "not_evaluated": [{"name": "Many", "reason": many}, {"name": "Misspelt", "reason": misspelt}],
        "alerts": [
            {
                "name": "Allocated",
                "severity": "warning",
                "labels": {
                    "alertname": "Allocated",
                    "gpu_type": "a100-80gb",
                    "state": "allocated",
                    "severity": "warning",
                },
                "annotations": {"summary": "12 a100-80gb GPUs"},
                "value": 12.0,
            }
        ],
    }


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (RULES.replace("> 1000", "> many"), "line 10: groups[0].rules[1].expr: column 19: expected a number"),
        ("groups: 5", "line 1: groups: Expected `array`, got `int`"),
    ],
)
def test_an_error_names_file_line_and_field(text: str, problem: str, gpuconsole: Line, tmp_path: Path) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text(text)
    done = gpuconsole("alerts", "three-nodes", "--rules", rules)
    assert done.status == 2
    assert f"{rules}: {problem}" in done.err


def test_without_a_rule_file_the_command_says_where_to_name_one(gpuconsole: Line) -> None:
    done = gpuconsole("alerts", "three-nodes")
    assert "no rule file: use --rules FILE, or set alerts.rules in config.yaml" in done.err
