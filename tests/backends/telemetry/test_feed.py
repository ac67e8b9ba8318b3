"""The feed tells what is new, keeps what it knew where a source fails, and says what is wrong with which address."""

from collections.abc import Callable

from msgspec.structs import replace

from gpuconsole.backends.telemetry.feed import FORGOTTEN, MOST, Feed, Scrape
from gpuconsole.errors import TelemetryError
from gpuconsole.model.clock import MINUTE, SECOND, Span, Time
from gpuconsole.model.events import Applied, Deleted, Event
from gpuconsole.model.telemetry import GpuMetric, MeasuredDevice, NodeTelemetry
from tests.support.prometheus_answers import NOW

COLUMNS = {GpuMetric.UTILISATION: (0.0,), GpuMetric.MEMORY_USED: (3.0,)}


def node(name: str, time: Time, **more: object) -> NodeTelemetry:
    known = NodeTelemetry(
        name=name, time=time, source="http://p", lasts=90 * SECOND, devices=(MeasuredDevice(gpu=0),), columns=COLUMNS
    )
    return replace(known, **more)


class Script:
    """A source that answers what it is given, look by look."""

    address = "http://p"

    def __init__(self, *looks: Scrape | Exception) -> None:
        self.looks = list(looks)

    def read(self, known: Callable[[str], bool], now: Time, lasts: Span) -> Scrape:
        assert lasts == 90 * SECOND
        look = self.looks.pop(0)
        if isinstance(look, Exception):
            raise look
        return look

    def close(self) -> None:
        """Nothing is kept."""


class Clock:
    now = NOW

    def __call__(self) -> Time:
        return self.now


def told(feed: Feed) -> list[Event]:
    feed.look()
    return list(feed.take())


def test_only_what_was_measured_anew_is_told_and_idleness_is_counted_on() -> None:
    later = NOW + MINUTE
    clock = Clock()
    looks = (node("a", NOW),), (node("a", NOW), node("b", later)), (node("a", later),)
    feed = Feed(Script(*map(Scrape, looks)), wall=clock)
    assert told(feed) == [Applied(NOW, node("a", NOW, idle=(NOW,)))]
    assert told(feed) == [Applied(NOW, node("b", later, idle=(later,)))]
    assert told(feed) == [Applied(NOW, node("a", later, idle=(NOW,)))]


def test_a_source_that_remembers_says_since_when_gpus_are_idle() -> None:
    feed = Feed(Script(Scrape((node("a", NOW),), idle={("a", 0, -1): NOW - 30 * MINUTE})), wall=Clock())
    assert told(feed) == [Applied(NOW, node("a", NOW, idle=(NOW - 30 * MINUTE,)))]


def test_a_failure_is_said_and_over_with_the_next_answer() -> None:
    good, better = Scrape((node("a", NOW),)), Scrape((node("a", NOW + 1),))
    feed = Feed(Script(good, TelemetryError("http://p: refused"), ValueError("odd"), better), wall=Clock())
    told(feed)
    assert (feed.sight.nodes, feed.sight.trouble) == (1, "")
    assert told(feed) == []
    assert (feed.sight.nodes, feed.sight.trouble) == (1, "No telemetry from http://p: refused")
    assert told(feed) == []
    assert feed.sight.trouble == "No telemetry from http://p: ValueError: odd"
    assert len(told(feed)) == 1
    assert feed.sight.trouble == ""


def test_a_source_that_failed_is_asked_again_so_soon_that_its_return_is_noticed_within_ten_seconds() -> None:
    feed = Feed(Script(TelemetryError("http://p: refused"), Scrape((node("a", NOW),))), wall=Clock())
    told(feed)
    assert feed.until_next < 8.0
    told(feed)
    assert feed.until_next > 25.0


def test_part_of_the_trouble_is_said_for_all() -> None:
    feed = Feed(Script(Scrape((), ("http://a: refused", "http://b: refused", "http://c: refused"), 7)), wall=Clock())
    told(feed)
    assert feed.sight.trouble == "http://a: refused; 2 more; http://p: 7 series have no node or GPU label"


def test_what_was_not_heard_of_for_long_is_gone() -> None:
    clock = Clock()
    feed = Feed(Script(Scrape((node("a", NOW),)), Scrape(), Scrape()), wall=clock)
    told(feed)
    clock.now = NOW + FORGOTTEN
    assert told(feed) == []
    clock.now += 1
    assert told(feed) == [Deleted(clock.now, "telemetry", "a")]


def test_a_poll_takes_a_bounded_part() -> None:
    feed = Feed(Script(Scrape(tuple(node(f"n{number}", NOW) for number in range(MOST + 5)))), wall=Clock())
    assert len(told(feed)) == MOST
    assert len(list(feed.take())) == 5
    assert list(feed.take()) == []
