"""The budget of requests: never overdrawn, refilled with time, silent when it is asked to be."""

from gpuconsole.backends.kube.client import RateLimiter


class Hours:
    """A clock that only sleep moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def times(budget: RateLimiter, clock: Hours, count: int) -> list[float]:
    found = []
    for _ in range(count):
        budget.take()
        found.append(round(clock.now - 1000, 6))
    return found


def test_a_burst_goes_at_once_and_the_rest_at_the_rate() -> None:
    clock = Hours()
    budget = RateLimiter(rate=2, burst=3, clock=clock, sleep=clock.sleep)
    assert times(budget, clock, 6) == [0, 0, 0, 0.5, 1.0, 1.5]


def test_a_rest_fills_it_up_to_the_burst_and_no_further() -> None:
    clock = Hours()
    budget = RateLimiter(rate=2, burst=3, clock=clock, sleep=clock.sleep)
    times(budget, clock, 3)
    clock.now = 1100
    assert times(budget, clock, 4) == [100, 100, 100, 100.5]


def test_a_server_that_asks_for_silence_gets_it() -> None:
    clock = Hours()
    budget = RateLimiter(rate=2, burst=3, clock=clock, sleep=clock.sleep)
    budget.pause(7)
    assert times(budget, clock, 1) == [7]


def test_it_counts_the_requests_of_the_last_minute() -> None:
    clock = Hours()
    budget = RateLimiter(rate=2, burst=3, clock=clock, sleep=clock.sleep)
    times(budget, clock, 3)
    clock.now += 30
    times(budget, clock, 1)
    assert budget.last_minute == 4
    clock.now += 30
    assert budget.last_minute == 1
