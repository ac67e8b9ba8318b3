"""How busy GPUs were in the last hour, by five minutes; what was not measured is no zero."""

from collections.abc import Iterable, Sequence

from gpuconsole.insight.health.telemetry import BINS, SAMPLES, Trend, Trends, UtilizationSample, known, on_node
from gpuconsole.model.clock import HOUR, MINUTE, SECOND, Time
from gpuconsole.model.events import Applied, Deleted
from gpuconsole.model.state import ClusterState
from gpuconsole.model.telemetry import GpuMetric, MeasuredDevice, NodeTelemetry
from tests.support.snapshots import START, node, pod

PLACES = ((0, -1), (1, -1))
NO_TREND: Trend = (None,) * BINS


class Measured:
    """A node of two GPUs whose telemetry comes as the tests say."""

    def __init__(self, *past: UtilizationSample) -> None:
        self.asked: list[str] = []
        self.kept: list[UtilizationSample] = []
        self.past = past
        self.state = ClusterState(START)
        self.trends = Trends(self.remember)
        self.put(node("n", 2))

    def remember(self, nodes: Sequence[str]) -> Iterable[UtilizationSample]:
        self.asked += nodes
        return self.past

    def put(self, thing: object) -> None:
        self.state.apply(Applied(self.state.time, thing))  # type: ignore[arg-type]

    def tell(self, at: Time, *busy: float | None, instance: int = -1, owner: str = "") -> None:
        devices = tuple(MeasuredDevice(gpu=gpu, instance=instance, pod=owner) for gpu in range(len(busy)))
        self.put(NodeTelemetry(name="n", time=at, devices=devices, columns={GpuMetric.UTILISATION: busy}))
        self.state.time = max(self.state.time, at)
        self.kept += self.trends.take(self.state.freeze())

    def of(self, *gpus: int, now: Time = START) -> Trend:
        found = on_node(self.state.freeze(), "n")
        return self.trends.of([gpu for gpu in found if gpu.device.gpu in gpus], now)


def test_each_five_minutes_have_their_mean_and_gaps_stay_gaps() -> None:
    measured = Measured()
    for minutes, percent in ((1, 10.0), (2, 30.0), (11, 100.0)):
        measured.tell(START + minutes * MINUTE, percent, None)
    now = START + 12 * MINUTE
    assert measured.of(0, now=now)[-3:] == (20.0, None, 100.0)
    assert measured.of(1, now=now) == NO_TREND
    assert measured.of(0, 1, now=now) == measured.of(0, now=now)
    assert known(measured.of(0, now=now))
    assert not known(NO_TREND)


def test_what_is_older_than_an_hour_is_forgotten() -> None:
    measured = Measured()
    measured.tell(START, 50.0, 50.0)
    assert measured.of(0, now=START + HOUR - 1)[0] == 50.0
    assert measured.of(0, now=START + HOUR) == NO_TREND


def test_the_ring_is_full_after_an_hour_and_goes_on() -> None:
    measured = Measured()
    for number in range(SAMPLES + 10):
        measured.tell(START + number * 30 * SECOND, float(number % 100), 0.0)
    newest = START + (SAMPLES + 9) * 30 * SECOND
    assert measured.of(0, now=newest)[-1] == sum(n % 100 for n in range(SAMPLES, SAMPLES + 10)) / 10
    assert measured.of(0, now=newest + 59 * MINUTE)[0] is not None


def test_samples_that_come_too_soon_are_left_out() -> None:
    measured = Measured()
    measured.tell(START, 10.0, 0.0)
    measured.tell(START + SECOND, 90.0, 0.0)
    assert measured.of(0)[-1] == 10.0


def test_an_owner_is_not_charged_with_what_was_before_it() -> None:
    measured = Measured()
    measured.tell(START, 90.0, 90.0)
    measured.put(pod("a", "n", (0,), started=START + MINUTE))
    measured.tell(START + MINUTE, 10.0, 10.0, owner="team/a")
    assert measured.of(0, now=START + 2 * MINUTE)[-1] == 10.0


def test_other_devices_and_nodes_that_are_gone_begin_anew() -> None:
    measured = Measured()
    measured.tell(START, 90.0, 90.0)
    measured.tell(START + MINUTE, 10.0, 10.0, instance=3)
    assert measured.of(0, now=START + MINUTE)[-1] == 10.0
    measured.state.apply(Deleted(START + MINUTE, "telemetry", "n"))
    measured.trends.take(measured.state.freeze())
    measured.tell(START + 2 * MINUTE, 20.0, 20.0, instance=3)
    assert measured.of(0, now=START + 2 * MINUTE)[-1] == 20.0


def test_two_samples_of_each_five_minutes_are_worth_keeping() -> None:
    measured = Measured()
    for number in range(21):
        measured.tell(START + number * 30 * SECOND, float(number), None)
    assert measured.kept == [
        UtilizationSample("n", START + number * 30 * SECOND, PLACES, bytes([number, 255]))
        for number in (0, 5, 10, 15, 20)
    ]


def test_what_was_kept_goes_before_what_is_measured_now() -> None:
    past = [
        UtilizationSample("n", START - minutes * MINUTE, PLACES, bytes([percent, 255]))
        for minutes, percent in ((7, 40), (2, 80))
    ]
    measured = Measured(*past)
    measured.tell(START, 100.0, 20.0)
    measured.tell(START + MINUTE, 100.0, 20.0)
    assert measured.asked == ["n"], "once, when the node is seen first"
    assert measured.of(0, now=START + MINUTE)[-2:] == (40.0, (80 + 100 + 100) / 3)
    assert measured.of(1, now=START + MINUTE)[-2:] == (None, 20.0)
    assert [sample.time for sample in measured.kept] == [START + MINUTE], "three minutes after the last one"


def test_what_was_kept_of_other_devices_is_left_out() -> None:
    measured = Measured(
        UtilizationSample("n", START - MINUTE, ((0, 3), (1, 3)), b"\x10\x10"),
        UtilizationSample("n", START, PLACES, b"odd"),
    )
    measured.tell(START, 100.0, 20.0)
    assert measured.of(0) == (*NO_TREND[1:], 100.0)
