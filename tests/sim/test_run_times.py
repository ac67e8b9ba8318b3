"""Run times by survival curves: who has not ended yet counts, and what has lasted long lasts on."""

from gpuconsole.model.clock import HOUR, MINUTE
from gpuconsole.sim.run_times import CLUSTER, MAX_RUNS_PER_GROUP, ObservedRun, RunTimes, WorkKind, learn_run_times

A = WorkKind("team", "a", 8)


def ended(*hours: int, kind: WorkKind = A) -> list[ObservedRun]:
    return [ObservedRun(kind, length * HOUR) for length in hours]


def test_each_end_takes_its_part_of_those_still_there() -> None:
    curve = learn_run_times(ended(1, 2, 3, 4), {}).curves[CLUSTER]
    assert curve.lengths == (HOUR, 2 * HOUR, 3 * HOUR, 4 * HOUR)
    assert curve.lasting == (0.75, 0.5, 0.25, 0.0)


def test_work_that_goes_on_makes_what_is_longer_more_probable() -> None:
    going = [ObservedRun(A, 2 * HOUR, ended=False), ObservedRun(A, 2 * HOUR, ended=False)]
    curve = learn_run_times([*ended(1, 3), *going], {}).curves[CLUSTER]
    # Of four one ends after an hour; the last one alone is left when the next does.
    assert (curve.lengths, curve.lasting, curve.ends) == ((HOUR, 3 * HOUR), (0.75, 0.0), 2)


def test_what_has_lasted_for_a_while_lasts_longer_than_that() -> None:
    curve = learn_run_times(ended(1, 2, 3, 4), {}).curves[CLUSTER]
    assert [curve.duration_at(chance) // HOUR for chance in (0.9, 0.6, 0.3, 0.1)] == [1, 2, 3, 4]
    assert [curve.duration_at(chance, 2 * HOUR + MINUTE) // HOUR for chance in (0.9, 0.6, 0.4, 0.1)] == [3, 3, 4, 4]


def test_what_is_overdue_lasts_about_as_long_again() -> None:
    curve = learn_run_times(ended(1, 2, 3, 4), {}).curves[CLUSTER]
    assert curve.duration_at(0.5, 10 * HOUR) == 20 * HOUR
    assert curve.duration_at(0.9, 10 * HOUR) < 12 * HOUR
    assert curve.duration_at(0.001, 10 * HOUR) == 200 * HOUR


def test_the_narrowest_group_that_has_seen_enough_speaks() -> None:
    mine = WorkKind("team", "a", 8)
    sibling, stranger = WorkKind("other", "a", 8), WorkKind("other", "b", 1)
    table = learn_run_times(
        [*ended(*[1] * 5, kind=mine), *ended(*[2] * 15, kind=sibling), *ended(*[9] * 30, kind=stranger)], {}
    )
    assert table.curve(mine)[0] == "queue a, 8 to 15 GPUs"
    assert table.curve(WorkKind("team", "a", 1))[0] == "queue a"
    assert table.curve(WorkKind("new", "c", 8))[0] == "8 to 15 GPUs"
    assert table.curve(WorkKind("new", "c", 64))[0] == CLUSTER
    assert table.curve(stranger)[0] == "owner other, queue b, 1 GPU"


def test_the_same_seed_draws_the_same_and_nothing_known_is_about_an_hour() -> None:
    table = learn_run_times(ended(*range(1, 40)), {"crew": 30 * HOUR})
    assert table.draw(1, "crew", A) == table.draw(1, "crew", A) > 30 * HOUR
    assert len({table.draw(seed, "other", A) for seed in range(20)}) > 5
    lengths = [RunTimes().draw(seed, "crew", A) for seed in range(20)]
    assert all(HOUR // 2 <= length <= 3 * HOUR // 2 for length in lengths)


def test_in_one_run_work_alike_is_short_or_long_together() -> None:
    table = learn_run_times(ended(*range(1, 101)), {})

    def spread(kinds: list[WorkKind]) -> float:
        """How far apart run times of two pieces of work are, in the mean over many runs."""
        pairs = [[table.draw(seed, f"crew-{n}", kind) for n, kind in enumerate(kinds)] for seed in range(200)]
        return sum(abs(one - other) for one, other in pairs) / len(pairs)

    assert spread([A, A]) < 0.85 * spread([A, WorkKind("stranger", "b", 1)])


def test_the_newest_work_is_what_began_last_ended_or_not() -> None:
    going = [ObservedRun(A, HOUR, ended=False)] * (MAX_RUNS_PER_GROUP - 1)
    curve = learn_run_times([*ended(*[9] * 50), *ended(2), *going], {}).curves[CLUSTER]
    assert (curve.lengths, curve.ends) == ((2 * HOUR,), 1)
