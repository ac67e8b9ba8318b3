"""Requests to an API server: credentials that were rotated are read anew, and errors say what would help."""

import threading
from typing import Any

import pytest

from gpuconsole.backends.kube.client import RENEW_EVERY, ApiServerConnection, RateLimiter
from gpuconsole.backends.kube.errors import Busy, Forbidden, Refused, ResourceExpired, Unauthorized, Unreachable
from gpuconsole.backends.kube.target import RequestedCluster
from tests.support.api_server import ApiServer

NODES = "/api/v1/nodes"


class Clock:
    """A time that tests make. Mutates by being added to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def connection(api: ApiServer, clock: Clock) -> ApiServerConnection:
    return ApiServerConnection(RequestedCluster(kubeconfig=str(api.kubeconfig)), clock=clock)


def rotate(api: ApiServer) -> None:
    """From now on another token is right."""
    api.tokens = {"rotated"}


def test_a_token_that_was_rotated_is_read_anew_and_the_request_is_sent_again(
    api: ApiServer, connection: ApiServerConnection, clock: Clock
) -> None:
    assert connection.get(NODES).code == 200
    rotate(api)
    api.write_kubeconfig("rotated")
    clock.now += RENEW_EVERY
    assert connection.get(NODES).decode(dict[str, Any])["items"] == []
    assert api.asked["list nodes"] == 2


def test_a_stream_gets_the_new_token_too(api: ApiServer, connection: ApiServerConnection, clock: Clock) -> None:
    rotate(api)
    api.write_kubeconfig("rotated")
    clock.now += RENEW_EVERY
    with connection.stream(NODES, {"watch": "1", "sendInitialEvents": "true"}, timeout=5) as stream:
        assert len(next(stream.lines())) == 1, "the bookmark that ends the list"


@pytest.mark.parametrize("waited", [0.0, RENEW_EVERY - 0.1, RENEW_EVERY])
def test_credentials_that_are_not_accepted_are_told_and_not_read_all_the_time(
    api: ApiServer, connection: ApiServerConnection, clock: Clock, waited: float
) -> None:
    rotate(api)
    clock.now += waited
    with pytest.raises(Unauthorized, match="the credentials were rejected; log in again"):
        connection.get(NODES)
    sent = connection.budget.last_minute
    assert sent == (2 if waited == RENEW_EVERY else 1), "it is tried again with what was read anew only"


def test_a_kubeconfig_that_is_gone_leaves_the_error_of_the_server(
    api: ApiServer, connection: ApiServerConnection, clock: Clock
) -> None:
    rotate(api)
    api.kubeconfig.unlink()
    clock.now += RENEW_EVERY
    with pytest.raises(Unauthorized):
        connection.get(NODES)


@pytest.mark.parametrize(
    ("status", "kind", "says"),
    [
        (401, Unauthorized, "not now (HTTP 401: the credentials were rejected"),
        (403, Forbidden, "not now (HTTP 403: ask for a role that allows it"),
        (410, ResourceExpired, "not now"),
        (429, Busy, "not now"),
        (503, Busy, "not now"),
        (500, Refused, "not now"),
    ],
)
def test_what_the_server_answers_instead_is_an_error_that_names_it(
    api: ApiServer, connection: ApiServerConnection, status: int, kind: type[Refused], says: str
) -> None:
    api.moods.append((NODES, status, {}))
    with pytest.raises(kind) as error:
        connection.get(NODES)
    assert type(error.value) is kind
    assert error.value.code == status
    assert f"context test (http://127.0.0.1:{api.port}): {says}" in str(error.value)


def test_a_redirection_is_not_followed_with_the_token(api: ApiServer, connection: ApiServerConnection) -> None:
    api.moods.append((NODES, 307, {"Location": f"http://127.0.0.1:{api.port}/api/v1/pods"}))
    with pytest.raises(Refused) as error:
        connection.get(NODES)
    assert error.value.code == 307
    assert not api.asked


def test_all_requests_are_silent_for_as_long_as_the_server_asked(api: ApiServer) -> None:
    slept: list[float] = []
    clock = Clock()

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        clock.now += seconds

    connection = ApiServerConnection(
        RequestedCluster(kubeconfig=str(api.kubeconfig)), RateLimiter(clock=clock, sleep=sleep), clock=clock
    )
    api.moods.append((NODES, 429, {"Retry-After": "7"}))
    with pytest.raises(Busy) as error:
        connection.get(NODES)
    assert (error.value.retry_after, slept) == (7.0, [])
    connection.get("/readyz")
    assert slept == [7.0], "another request waits as well"


def test_no_server_is_left_alone_for_longer_than_an_api_server_may_ask_for(api: ApiServer) -> None:
    slept: list[float] = []
    clock = Clock()

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        clock.now += seconds

    connection = ApiServerConnection(
        RequestedCluster(kubeconfig=str(api.kubeconfig)), RateLimiter(clock=clock, sleep=sleep), clock=clock
    )
    api.moods.append((NODES, 429, {"Retry-After": "100"}))
    with pytest.raises(Busy, match="retry in 100s"):
        connection.get(NODES)
    connection.get("/readyz")
    assert slept == [32.0]


def test_a_server_that_reads_the_storage_of_one_kind_keeps_that_one_waiting_only(
    api: ApiServer, connection: ApiServerConnection
) -> None:
    api.moods.append((NODES, 429, {"Retry-After": "60"}))
    api.says = "storage is (re)initializing"
    with pytest.raises(Busy) as error:
        connection.get(NODES)
    assert error.value.retry_after == 60.0
    connection.get("/readyz")


def test_a_server_that_is_not_there_is_told_with_what_to_look_at(
    api: ApiServer, connection: ApiServerConnection
) -> None:
    api.close()
    with pytest.raises(Unreachable, match="Connection refused; check the server and the network"):
        connection.get(NODES)
    assert connection.last_response_at == 0.0


def test_a_server_that_is_too_slow_is_told_in_plain_words(api: ApiServer, connection: ApiServerConnection) -> None:
    told = threading.Event()
    api.forbidden = lambda *_: told.wait()
    with pytest.raises(Unreachable, match=": timed out; check the server and the network"):
        connection.get(NODES, read=0.05)
    told.set()


def test_it_is_noted_when_the_server_was_heard(api: ApiServer, connection: ApiServerConnection, clock: Clock) -> None:
    clock.now = 321.0
    connection.get(NODES)
    assert connection.last_response_at == 321.0
    clock.now = 322.0
    api.moods.append((NODES, 500, {}))
    with pytest.raises(Refused):
        connection.get(NODES)
    assert connection.last_response_at == 322.0, "an error is a sign of life, too"
