"""What a plan promises, held against a what-if of its changes on clusters that went through anything."""

from hypothesis import given
from hypothesis import strategies as st

from gpuconsole.insight.whatif.plan import plan
from gpuconsole.insight.whatif.whatif import what_if_steps
from gpuconsole.model.clock import MINUTE, SECOND, Span
from gpuconsole.model.commands import Command, Later, SetPriority, Submit
from gpuconsole.model.cooperative import complete_answer
from gpuconsole.model.workloads import Workload
from gpuconsole.sim.engine import Simulation
from tests.insight.test_answer_laws import LIFE, law, lived
from tests.support.random_simulations import LIVES, TEAMS
from tests.support.sim_cluster import workload

ASKED = st.lists(
    st.builds(workload, st.sampled_from("xyz"), TEAMS, gpus=st.integers(1, 4), pods=st.integers(1, 4)),
    min_size=1,
    max_size=2,
    unique_by=lambda one: one.key,
)


@law
@given(LIVES, ASKED)
def test_what_a_plan_promises_comes_true_in_a_what_if_and_takes_every_part_of_it(
    deeds: LIFE, asked: list[Workload]
) -> None:
    """The asked ones get a higher priority together."""
    base, submission = lived(deeds), Submit(tuple(asked))
    found = plan(base, (submission,), 2 * MINUTE, 20 * MINUTE)
    for option in found.options:
        assert _runs_within(base, submission, option.commands, found.horizon) == option.p95_wait or not option.holds
        for left_out in option.commands if option.kind != "priority" else ():
            rest = tuple(command for command in option.commands if command != left_out)
            span = _runs_within(base, submission, rest, found.horizon)
            assert not option.holds or span is None or span > found.wanted, (option, left_out)


def _runs_within(base: Simulation, asked: Submit, changes: tuple[Command, ...], horizon: Span) -> Span | None:
    """How long the last of the asked ones waits until all its pods run and stay, if the changes come before it."""
    late = base.policy.requeue_batch_interval + SECOND
    first = [change for change in changes if not isinstance(change, SetPriority)]
    then: list[Command] = [asked, *(change for change in changes if isinstance(change, SetPriority))]
    answer = complete_answer(what_if_steps(base, (*first, *(Later(late, command) for command in then)), horizon + late))
    mine = {thing.key for thing in asked.objects}
    starts_of = [one.started for one in answer.outcomes if one.workload in mine]
    if None in starts_of or {victim.workload for victim in answer.evictions} & mine:
        return None
    return max(start - base.now - late for start in starts_of if start is not None)
