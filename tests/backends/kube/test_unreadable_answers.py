"""Answers of an API server that cannot be read are errors that name it, whatever was asked: never a traceback."""

from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from gpuconsole.backends.kube import client, errors
from gpuconsole.backends.kube.client import ApiServerConnection, ServiceProxy
from gpuconsole.backends.kube.errors import Cut, Unreadable
from gpuconsole.backends.kube.target import RequestedCluster
from gpuconsole.errors import ClusterError, TelemetryError
from gpuconsole.model.commands import Command, Cordon, Drain, SetQuota, SetTaint, Submit
from gpuconsole.model.events import HistoryEventKind
from tests.backends.kube.conftest import Sight
from tests.support import api_documents
from tests.support.api_server import ApiServer
from tests.support.api_server_faults import ANSWERS, LOGIN, Fault, answer, watch_lines

Make = Callable[..., Sight]
ODD = {
    **ANSWERS,
    "items that are numbers": answer(b'{"kind":"List","metadata":{"resourceVersion":"9"},"items":[7]}'),
    "items without metadata": answer(b'{"kind":"List","metadata":{"resourceVersion":"9"},"items":[{"metadata":7}]}'),
    "metadata that is a list": answer(b'{"kind":"Node","metadata":[7],"spec":[7]}'),
    "a version that is a number": answer(b'{"kind":"Node","metadata":{"name":"n0","resourceVersion":7}}'),
    "a time that is none": answer(b'{"items":[{"lastTimestamp":"soon"}],"metadata":{"name":[7]}}'),
    "a count that is none": answer(b'{"items":[{"count":"many"}],"metadata":{"name":[7]}}'),
    "groups that are none": answer(b'{"metadata":{"resourceVersion":"9"},"spec":{"resourceGroups":7}}'),
    "flavors without a name": answer(b'{"metadata":{},"spec":{"resourceGroups":[{"flavors":[{}]}]}}'),
}


@pytest.fixture
def see(api: ApiServer, sight: Make) -> Sight:
    """A backend on one node and one queue."""
    api.put("nodes", api_documents.node("n0"))
    api.put("clusterqueues", api_documents.cluster_queue("cq"))
    one = sight()
    one.loaded()
    return one


Found = TypeVar("Found")


def outcome(work: Callable[[], Found]) -> tuple[Found | None, ClusterError | None]:
    """What was found, or the error."""
    try:
        return work(), None
    except ClusterError as error:
        return None, error


def is_named(error: BaseException, api: ApiServer) -> bool:
    return f"context test (http://127.0.0.1:{api.port}): " in str(error) and "('" not in str(error)


@pytest.mark.parametrize("fault", ODD.values(), ids=ODD)
def test_a_manifest_that_cannot_be_read_is_an_error(api: ApiServer, see: Sight, fault: Fault) -> None:
    api.misbehave(fault, "nodes/n0")
    with pytest.raises(ClusterError) as error:
        see.backend.object_access().manifest("nodes", "n0")
    assert is_named(error.value, api)


@pytest.mark.parametrize("fault", ODD.values(), ids=ODD)
def test_events_that_cannot_be_read_are_an_error_or_none(api: ApiServer, see: Sight, fault: Fault) -> None:
    api.misbehave(fault, "^list .*/events$")
    found, error = outcome(lambda: see.backend.object_access().events("nodes", "n0"))
    assert is_named(error, api) if error is not None else all(said.reason == "" for said in found or ())


@pytest.mark.parametrize("fault", ODD.values(), ids=ODD)
@pytest.mark.parametrize(
    "command",
    [
        Cordon("n0", True),
        Drain("n0"),
        SetQuota("cq", "a100", api_documents.GPU, 4),
        SetTaint("n0", "dedicated", "ml", "NoExecute"),
        Submit((), ('{"apiVersion":"batch/v2","kind":"CronThing","metadata":{"name":"x"}}',)),
    ],
    ids=["cordon", "drain", "set quota", "taint", "submit"],
)
def test_a_command_whose_answers_cannot_be_read_is_done_or_refused_with_who_said_it(
    api: ApiServer, see: Sight, fault: Fault, command: Command
) -> None:
    api.misbehave(fault, "^(get|list|create) .*(pods|clusterqueues/cq|nodes/n0|batch/v2.*)$")
    see.backend.submit(command)
    see.until(lambda _: see.lines)
    line = see.lines[0]
    named = f"context test (http://127.0.0.1:{api.port}): "
    assert (
        line.what is HistoryEventKind.COMMAND_DONE
        or named in line.message
        or "does not serve CronThing" in line.message
    )
    assert "Error(" not in line.message


@pytest.mark.parametrize("fault", ODD.values(), ids=ODD)
def test_a_dry_run_whose_answer_cannot_be_read_is_an_error_or_names_what_was_asked(
    api: ApiServer, see: Sight, fault: Fault
) -> None:
    manifest = '{"apiVersion":"v1","kind":"Pod","metadata":{"name":"x","namespace":"team"}}'
    api.misbehave(fault, "^(patch|create) ")
    found, error = outcome(lambda: see.backend.object_access().rehearse((manifest,)))
    assert is_named(error, api) if error is not None else str(found).startswith("('Pod ")


@pytest.mark.parametrize("fault", ODD.values(), ids=ODD)
def test_services_that_cannot_be_read_are_an_error_of_telemetry(api: ApiServer, fault: Fault) -> None:
    api.misbehave(fault, "services$")
    connection = ApiServerConnection(RequestedCluster(kubeconfig=str(api.kubeconfig)))
    with pytest.raises(TelemetryError):
        ServiceProxy("find", lambda: connection).get("/api/v1/query", {})


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (answer(LOGIN, "text/html"), "the response is a web page; is it a Kubernetes API server, or a proxy"),
        (answer(b" \n"), "the response is empty; is it"),
        (answer(b'{"kind'), "invalid response: Input data was truncated; is it"),
        (answer(b"[" * 100_000), "invalid response: nested too deeply; is it"),
        (answer(b'{"kind":"\xff"}'), "invalid response: not valid UTF-8; is it"),
    ],
    ids=["login page", "empty", "half", "deep", "no UTF-8"],
)
def test_the_error_says_what_came_instead(api: ApiServer, fault: Fault, says: str) -> None:
    api.misbehave(fault)
    with pytest.raises(Unreadable) as error:
        ApiServerConnection(RequestedCluster(kubeconfig=str(api.kubeconfig))).get("/api").decode(Any)
    assert f"): GET /api: {says}" in str(error.value)
    assert str(error.value).endswith("(HTTP 200)")


@pytest.mark.parametrize("code", [400, 402, 404, 409, 410, 418, 422, 429, 500, 502, 503, 504])
@pytest.mark.parametrize("body", [b"", b"<html>Bad gateway</html>", b'{"message":"no"}', b'{"reason":"Odd"}'])
def test_every_refusal_names_its_status_once(code: int, body: bytes) -> None:
    said = str(errors.refused("here", code, body, "7" if code == 429 else ""))
    assert said.count(f"HTTP {code}") == 1
    assert "<" not in said
    assert said.startswith("here: ")


def test_a_busy_server_is_told_with_when_it_wants_to_be_asked_again() -> None:
    error = errors.refused("here", 429, b'{"message":"slow down"}', "7")
    assert (str(error), error.said) == (
        "here: slow down (HTTP 429: retry in 7s)",
        "slow down (HTTP 429: retry in 7s)",
    )


def test_a_line_without_an_end_is_bounded(api: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "LONGEST_LINE", 1_000_000)
    api.misbehave(watch_lines(b"x" * 65_536, again=0.001))
    connection = ApiServerConnection(RequestedCluster(kubeconfig=str(api.kubeconfig)))
    with (
        connection.stream("/api/v1/nodes", timeout=5) as stream,
        pytest.raises(Cut, match="a line is longer than"),
    ):
        assert not any(stream.lines())


def test_lines_come_whole_however_they_are_cut_and_those_after_a_long_one_too(api: ApiServer) -> None:
    long = b"y" * 300_000
    api.misbehave(watch_lines(b"a\nbb", b"b\n\n", long, b"\nlast\n", b"no end"))
    connection = ApiServerConnection(RequestedCluster(kubeconfig=str(api.kubeconfig)))
    with connection.stream("/api/v1/nodes", timeout=5) as stream:
        assert [line for lines in stream.lines() for line in lines] == [b"a", b"bbb", long, b"last"]


def test_a_line_of_a_watch_may_be_64_mebibytes_long() -> None:
    assert client.LONGEST_LINE == 64 * 1024 * 1024
