"""No file, however damaged, ends a command with an exception: a share of what `tests.tools.fuzz` does.

`GPUCONSOLE_FUZZ_SEED` and `GPUCONSOLE_FUZZ_COUNT` choose other inputs.
"""

import os
from pathlib import Path

import pytest

from tests.tools.fuzz import cases, find_problems, kinds

SEED = int(os.environ.get("GPUCONSOLE_FUZZ_SEED", "1"))
COUNT = int(os.environ.get("GPUCONSOLE_FUZZ_COUNT", "360"))
"""A few seconds on one core."""


def test_damaged_files_of_all_kinds_end_in_an_answer_or_a_named_error() -> None:
    problems = [f"{case.number} {case.kind} {case.command}: {problem}" for case, problem in find_problems(SEED, COUNT)]
    assert not problems, "\n".join(problems)


def test_the_same_seed_gives_the_same_inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUCONSOLE_STATE_DIR", str(tmp_path / "state"))
    made = kinds(tmp_path)
    first, again, other = (list(cases(seed, 60, made)) for seed in (5, 5, 6))
    assert first == again
    assert [case.data for case in first] != [case.data for case in other]
    assert {case.kind for case in first} == set(made)
