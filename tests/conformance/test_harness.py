"""The comparison with Kueue's tables counts honestly: what cannot be run has failed, what cannot be told counts not."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpuconsole.model.workloads import Workload
from tests.conformance.areas import CHECKS
from tests.conformance.known import areas, problems
from tests.conformance.tables import Case, NotModelled, Score, Table, compare, load, names, score, unchecked


def table(folder: Path, *cases: Mapping[str, Any]) -> Table:
    path = folder / "tables" / "area" / "Test.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"cases": cases, "fixtures": {"limit": 3}}))
    return load(folder, "area/Test")


def below(table: Table, case: Case) -> list[str]:
    if case.input["n"] < 0:
        raise NotModelled("negative numbers")
    return list(compare("want", case.input["n"] < table.fixtures["limit"], case.want["want"]))


def test_each_case_passes_fails_or_is_not_counted(tmp_path: Path) -> None:
    cases = [
        {"name": "right", "input": {"n": 1}, "want": {"want": True}},
        {"name": "wrong", "input": {"n": 5}, "want": {"want": True}},
        {"name": "beyond us", "input": {"n": -1}, "want": {"want": True}},
        {"name": "broken", "input": {}, "want": {"want": True}},
        {"name": "a function", "input": {"n": {"$func": "omitted"}}, "want": {"want": True}},
    ]
    result = score(table(tmp_path, *cases), below)
    assert result == Score(
        name="area/Test",
        passed=1,
        total=4,
        not_expressible=1,
        failures={
            "wrong": ("want:\n    got  False\n    want True",),
            "beyond us": ("not modelled: negative numbers",),
            "broken": ("KeyError: 'n'",),
        },
    )
    assert result.line() == "area/Test 1/4 (+1 not expressible)"


def test_scenarios_that_differ_have_to_be_known() -> None:
    results = [
        Score(name="scenarios/flat", total=2, failures={"one": ("cycle 0",), "two": ("cycle 3",)}),
        Score(name="area/Test", total=1, failures={"a case": ("want",)}),
    ]
    known = "- scenarios/flat one: scheduler.go:schedule, map order\n"
    assert list(problems(results, known)) == ["scenarios/flat two differs: cycle 3"]
    assert list(problems(results, known + "- scenarios/flat two: scheduler.go:schedule, map order\n")) == []
    many = "".join(f"- scenarios/flat s{number}: why\n" for number in range(4))
    assert list(problems([], many)) == ["KNOWN.md names 4 scenarios, 3 are accepted"]


def test_of_two_structs_the_fields_that_differ_are_named() -> None:
    first, second = Workload(name="w", priority=1), Workload(name="w", priority=2)
    assert list(compare("w", first, second)) == ["w.priority:\n    got  1\n    want 2"]
    assert list(compare("w", first, first)) == []


def test_areas_are_summed_and_measured_by_their_bars() -> None:
    results = [
        Score(name="scenarios/flat", passed=9, total=9),
        Score(name="webhooks/TestOne", passed=97, total=98),
        Score(name="webhooks/TestTwo", passed=0, total=2),
        Score(name="dra/TestOne", passed=8, total=9),
        Score(name="podset/TestOne", passed=1, total=4),
        Score(name="config/TestOne", not_expressible=3),
    ]
    assert list(areas(results)) == [
        "webhooks 97/100 = 97.0 % (bar 97 %)",
        "dra 8/9 = 88.9 % BELOW THE BAR OF 90 %",
        "podset 1/4 = 25.0 %",
    ]


def test_a_table_without_a_check_has_failed(tmp_path: Path) -> None:
    cases = [{"name": "one", "input": {"n": 1}, "want": {}}, {"name": "two", "input": {"n": {"$func": ""}}, "want": {}}]
    assert score(table(tmp_path, *cases), unchecked).line() == "area/Test 0/1 (+1 not expressible)"
    assert names(tmp_path) == ["area/Test"]


def test_every_check_is_of_one_table() -> None:
    plain = [name.removeprefix("volcano/").removeprefix("kai/") for name in CHECKS]
    assert [name for name in plain if name.count("/") != 1] == []


def test_tables_of_other_engines_have_their_engine_in_their_names(tmp_path: Path) -> None:
    for place in ("tables/dra", "volcano/scheduler_api", "kai/scheduler_utils"):
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / "TestOne.json").write_text(json.dumps({"cases": [{"name": place}]}))
    assert names(tmp_path) == ["dra/TestOne", "volcano/scheduler_api/TestOne", "kai/scheduler_utils/TestOne"]
    assert [case.name for name in names(tmp_path) for case in load(tmp_path, name).cases] == [
        "tables/dra",
        "volcano/scheduler_api",
        "kai/scheduler_utils",
    ]
