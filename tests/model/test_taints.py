"""Taints as kubectl reads them, with what the API server refuses."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuconsole.model.documents.pods_and_selectors import EFFECTS, TaintError, format_taint, parse_taint, taint_problem
from gpuconsole.model.labels import Taint

READ = {
    "dedicated=ml:NoSchedule": Taint("dedicated", "ml", "NoSchedule"),
    "dedicated:NoExecute": Taint("dedicated", "", "NoExecute"),
    "dedicated=:PreferNoSchedule": Taint("dedicated", "", "PreferNoSchedule"),
    " nvidia.com/gpu=present:NoSchedule ": Taint("nvidia.com/gpu", "present", "NoSchedule"),
    "A_b.c-9=X.y_z-1:NoExecute": Taint("A_b.c-9", "X.y_z-1", "NoExecute"),
    f"{'k' * 63}={'v' * 63}:NoSchedule": Taint("k" * 63, "v" * 63, "NoSchedule"),
}
REFUSED = {
    "": "is not a taint; write key=value:Effect",
    "dedicated": "is not a taint; write key=value:Effect",
    "dedicated=ml": "is not a taint; write key=value:Effect",
    "a=b:NoSchedule:NoExecute": "is not a taint",
    ":NoSchedule": "the key of a taint cannot be empty",
    "=v:NoSchedule": "the key of a taint cannot be empty",
    "a b:NoSchedule": "'a b' is not a valid key of a taint",
    "-a:NoSchedule": "'-a' is not a valid key of a taint",
    "/a:NoSchedule": "'/a' is not a valid key of a taint",
    "a/:NoSchedule": "'a/' is not a valid key of a taint",
    "a/b/c:NoSchedule": "'a/b/c' is not a valid key of a taint",
    "a..b/c:NoSchedule": "'a..b/c' is not a valid key of a taint",
    "Upper.com/c:NoSchedule": "'Upper.com/c' is not a valid key of a taint",
    f"{'k' * 64}:NoSchedule": "is not a valid key of a taint",
    f"{'d' * 254}/k:NoSchedule": "is not a valid key of a taint",
    "a=b=c:NoSchedule": "'b=c' is not a valid value of a taint",
    "a=-b:NoSchedule": "'-b' is not a valid value of a taint",
    f"a={'v' * 64}:NoSchedule": "is not a valid value of a taint",
    "a=b:": "'' is not an effect of a taint; write NoSchedule, PreferNoSchedule or NoExecute",
    "a=b:noschedule": "'noschedule' is not an effect of a taint",
    "a=b:NoSchedule-": "'NoSchedule-' is not an effect of a taint",
}


@pytest.mark.parametrize(("text", "taint"), READ.items())
def test_a_taint_is_read_as_kubectl_reads_it(text: str, taint: Taint) -> None:
    assert parse_taint(text) == taint
    assert parse_taint(format_taint(taint)) == taint


@pytest.mark.parametrize(("text", "problem"), REFUSED.items())
def test_what_is_no_taint_is_refused_with_what_would_be_one(text: str, problem: str) -> None:
    with pytest.raises(TaintError) as refused:
        parse_taint(text)
    assert problem in str(refused.value)


@given(st.text(max_size=80), st.text(max_size=80), st.sampled_from(EFFECTS))
def test_a_taint_without_a_problem_reads_back_as_itself(key: str, value: str, effect: str) -> None:
    taint = Taint(key, value, effect)
    if not taint_problem(taint):
        assert parse_taint(format_taint(taint)) == taint
