"""An API server that misbehaves: errors that name it, marks while it lasts, and the truth again when it ends."""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from msgspec.structs import replace

from gpuconsole.backends.base import ClusterHealth
from gpuconsole.backends.kube import errors as retrying
from gpuconsole.backends.kube.watch import WatchTimings
from gpuconsole.errors import ClusterError
from gpuconsole.model.snapshot import Snapshot
from tests.backends.kube.conftest import EAGER, Sight
from tests.support import api_documents
from tests.support.api_server import ApiServer
from tests.support.api_server_faults import ANSWERS, WATCHES, Fault, silence

Make = Callable[..., Sight]
TRUSTING = replace(EAGER, doubt=60.0)
"""What is forbidden, or gone, is doubted for longer than a test takes."""
HEALED = 10.0
"""Seconds in which everything is right again after a fault ends."""
WATCHED_OR_ANY = {**{f"watch: {name}": fault for name, fault in {**ANSWERS, **WATCHES}.items()}, **ANSWERS}
"""Faults of watches only, by `watch: NAME`, and of every request."""


IN_PAGES = [(False, name) for name in (*ANSWERS, "watch: ends at once", "watch: object of wrong types")]
SILENT = ["empty body", "ends at once", "blank lines", "blank lines that go on", "bytes without an end", "garbage"]


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is tried again at the start is tried again at once."""
    monkeypatch.setattr(retrying, "RESTS", (0.01, 0.01))
    monkeypatch.setattr(retrying, "PATIENCE", 1.5)


@pytest.fixture
def served(api: ApiServer) -> ApiServer:
    """A small cluster."""
    fill(api)
    return api


def fill(api: ApiServer) -> None:
    """Three nodes, a queue, and a Workload in it."""
    for n in range(3):
        api.put("nodes", api_documents.node(f"n{n}"))
    api.put("clusterqueues", api_documents.cluster_queue("cq"))
    api.put("localqueues", api_documents.local_queue("lq", "cq"))
    api.put("workloads", api_documents.workload("wl"))


def change(api: ApiServer) -> None:
    """A node comes, one goes, one changes, and so does a queue."""
    api.put("nodes", api_documents.node("n9"))
    api.put("nodes", api_documents.node("n1", gpus=4))
    api.delete("nodes", "/n0")
    api.put("clusterqueues", api_documents.cluster_queue("cq2"))


def is_changed(snapshot: Snapshot) -> bool:
    nodes = {name: node.gpus for name, node in snapshot.nodes.items()}
    queues, workloads = sorted(snapshot.cluster_queues), list(snapshot.workloads)
    return (nodes, queues, workloads) == ({"n1": 4, "n2": 8, "n9": 8}, ["cq", "cq2"], ["team/wl"])


def is_sound(health: ClusterHealth) -> bool:
    return (health.lost, health.unread, health.missing, health.seen.gaps) == ("", (), (), ())


def assert_right_again(see: Sight) -> None:
    """Everything is right, and nothing is complained of any more."""
    deadline = time.monotonic() + HEALED
    while not (is_changed(see.look()) and is_sound(see.backend.health)):
        assert time.monotonic() < deadline, see.backend.health
        time.sleep(0.02)


@contextmanager
def no_error_of_our_own(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    with caplog.at_level(logging.INFO, logger="gpuconsole"):
        yield
    assert [record.getMessage() for record in caplog.records if record.exc_info or record.levelno > 30] == []


def look_for(see: Sight, seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        see.look()
        time.sleep(0.02)


@pytest.mark.parametrize("fault", ANSWERS.values(), ids=ANSWERS)
def test_a_server_that_does_not_answer_at_the_start_is_an_error_that_names_it(
    api: ApiServer, sight: Make, fault: Fault
) -> None:
    api.misbehave(fault)
    with pytest.raises(ClusterError, match=rf"^context test \(http://127.0.0.1:{api.port}\): ") as error:
        sight()
    assert not str(error.value).partition("): ")[2].startswith("(")
    assert "('" not in str(error.value)


@pytest.mark.parametrize("fault", ANSWERS.values(), ids=ANSWERS)
@pytest.mark.parametrize("match", ["^(list|watch) ", "accessreviews"], ids=["reads", "reviews"])
def test_a_fault_of_some_paths_at_the_start_ends_without_a_trace(
    served: ApiServer, sight: Make, caplog: pytest.LogCaptureFixture, fault: Fault, match: str
) -> None:
    with no_error_of_our_own(caplog):
        served.misbehave(fault, match)
        see = sight(pace=TRUSTING)
        look_for(see, 0.1)
        change(served)
        served.heal()
        assert_right_again(see)


@pytest.mark.parametrize(("streaming", "name"), [*((True, name) for name in WATCHED_OR_ANY), *IN_PAGES])
def test_a_fault_in_the_middle_is_marked_leaves_what_is_known_and_ends_without_a_trace(
    served: ApiServer, sight: Make, caplog: pytest.LogCaptureFixture, streaming: bool, name: str
) -> None:
    served.streaming = streaming
    see = sight(quiet=0.5, pace=TRUSTING)
    see.loaded()
    with no_error_of_our_own(caplog):
        served.misbehave(WATCHED_OR_ANY[name], "^watch " if name.startswith("watch: ") else "")
        snapshot = see.until(lambda _: see.backend.health.lost or see.backend.health.unread)
        assert (sorted(snapshot.nodes), list(snapshot.workloads)) == (["n0", "n1", "n2"], ["team/wl"])
        assert not any("('" in text for text in (see.backend.health.lost, *see.backend.health.unread))
        change(served)
        look_for(see, 0.1)
        served.heal()
        assert_right_again(see)


def test_connections_that_are_refused_for_a_while_end_without_a_trace(
    served: ApiServer, sight: Make, caplog: pytest.LogCaptureFixture
) -> None:
    see = sight(quiet=0.5, pace=TRUSTING)
    see.loaded()
    with no_error_of_our_own(caplog):
        served.hang_up()
        see.until(lambda _: "Connection refused" in see.backend.health.lost)
        change(served)
        served.listen()
        assert_right_again(see)


def test_silence_for_a_while_ends_without_a_trace(
    served: ApiServer, sight: Make, caplog: pytest.LogCaptureFixture
) -> None:
    see = sight(quiet=0.5, pace=TRUSTING)
    see.loaded()
    with no_error_of_our_own(caplog):
        served.misbehave(silence)
        see.until(lambda _: see.backend.health.lost)
        change(served)
        look_for(see, 1.0)
        served.heal()
        assert_right_again(see)


@pytest.mark.parametrize("name", SILENT)
def test_watches_that_bring_nothing_are_stale_and_asked_for_ever_less_often(
    api: ApiServer, sight: Make, name: str
) -> None:
    fill(api)
    see = sight(pace=replace(WatchTimings(), proof=0.5))
    see.loaded()
    api.misbehave({**ANSWERS, **WATCHES}[name], "^watch ")
    see.until(lambda _: see.backend.health.lost)
    before = api.asked["faults"]
    look_for(see, 1.0)
    assert api.asked["faults"] - before <= 10, "nine kinds, of which each rests a second or more by now"


def test_between_two_tries_and_the_proof_of_the_second_less_than_ten_seconds_pass() -> None:
    pace = WatchTimings()
    assert pace.longest + pace.proof <= HEALED - 2.0


def test_what_is_forbidden_absent_or_unreadable_is_tried_again_in_time_however_long_it_lasts() -> None:
    pace = WatchTimings()
    assert max(pace.until_recheck for _ in range(1000)) < HEALED - 2.0


LASTING = [(match, name) for match in ("^(list|watch) ", "^(list|watch) .*nodes") for name in ("403", "404")]


@pytest.mark.parametrize("streaming", [True, False], ids=["streaming lists", "pages"])
@pytest.mark.parametrize(("match", "name"), LASTING)
def test_a_fault_that_is_believed_ends_soon_and_is_asked_about_seldom(
    served: ApiServer, sight: Make, match: str, name: str, streaming: bool
) -> None:
    served.streaming = streaming
    see = sight(pace=replace(EAGER, doubt=0.2, recheck=0.5))
    see.loaded()
    served.misbehave(ANSWERS[name], match)
    see.until(lambda _: not is_sound(see.backend.health))
    look_for(see, 2.0)
    before = served.asked["faults"]
    look_for(see, 2.0)
    kinds = 1 if "nodes" in match else 9
    assert 0 < served.asked["faults"] - before <= 10 * kinds, "a request or two a kind each half second"
    change(served)
    served.heal()
    begun = time.monotonic()
    assert_right_again(see)
    assert time.monotonic() - begun < 5.0


def test_what_is_forbidden_for_good_stays_marked_while_it_is_tried_again(served: ApiServer, sight: Make) -> None:
    see = sight(pace=replace(EAGER, doubt=0.1, recheck=0.05))
    see.loaded()
    served.misbehave(ANSWERS["403"], "^(list|watch) .*nodes")
    see.until(lambda _: see.backend.health.missing)
    until = time.monotonic() + 1.0
    while time.monotonic() < until:
        health = see.backend.health
        assert [right.resource for right in health.missing] == ["nodes"]
        assert (health.lost, health.unread) == ("", ())


def test_objects_that_cannot_be_read_for_good_cost_one_small_request_and_no_list_of_all(
    served: ApiServer, sight: Make
) -> None:
    served.put("nodes", {"metadata": {"name": "odd"}, "spec": 7})
    see = sight(pace=replace(EAGER, page=500, recheck=0.2))
    see.loaded()
    watched, listed = served.asked["watch nodes"], served.asked["list nodes"]
    look_for(see, 2.0)
    assert served.asked["watch nodes"] == watched
    assert 5 <= served.asked["list nodes"] - listed <= 12
    assert list(served.selectors["nodes"]) == ["metadata.name=odd"]
