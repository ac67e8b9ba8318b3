"""What `make mutants` breaks is there to be broken: it says so in seconds, not after the last of them has run."""

import pytest

from tests.tools.mutants import MUTANTS, ROOT, Mutant


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_line_that_a_mutant_breaks_occurs_once_and_its_tests_are_there(mutant: Mutant) -> None:
    occurrences = (ROOT / mutant.file).read_text().count(mutant.old)
    missing = [test for test in mutant.tests if not (ROOT / test).exists()]
    assert (occurrences, missing) == (1, [])
