"""Commands on a cluster whose API server misbehaves: exit status 2 and an error that names it, or the right answer."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuconsole.backends.kube import backend, discovery
from gpuconsole.backends.kube import errors as retrying
from tests.support import api_documents
from tests.support.api_server import ApiServer
from tests.support.api_server_faults import ANSWERS, silence, status
from tests.support.command_line import Line

QUESTIONS = (("why", "team/wl"), ("slots",), ("snapshot", "save", "s.json"))


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiServer]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(retrying, "RESTS", (0.01, 0.01))
    monkeypatch.setattr(retrying, "PATIENCE", 1.5)
    api = ApiServer(tmp_path)
    api.put("nodes", api_documents.node("n0"))
    api.put("clusterqueues", api_documents.cluster_queue("cq"))
    api.put("localqueues", api_documents.local_queue("lq", "cq"))
    api.put("workloads", api_documents.workload("wl"))
    yield api
    api.close()


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question[0])
@pytest.mark.parametrize("fault", ANSWERS)
def test_a_server_without_an_answer_is_one_line_and_status_2(
    gpuconsole: Line, cluster: ApiServer, fault: str, question: tuple[str, ...]
) -> None:
    cluster.misbehave(ANSWERS[fault])
    result = gpuconsole(*question, "--live", "--kubeconfig", cluster.kubeconfig)
    assert (result.status, result.out) == (2, "")
    assert result.err.startswith(f"gpuconsole: context test (http://127.0.0.1:{cluster.port}): ")
    assert (result.err.count("\n"), "Traceback" in result.err, "('" in result.err) == (1, False, False)
    if fault.partition(" ")[0].isdigit():
        assert f"HTTP {fault.partition(' ')[0]}" in result.err


@pytest.mark.parametrize("fault", ["429 with Retry-After", "500", "empty body", "half of a JSON", "cut connection"])
def test_what_heals_soon_after_the_start_is_tried_again(gpuconsole: Line, cluster: ApiServer, fault: str) -> None:
    asked: list[str] = []

    def once(handler: object, healed: object) -> None:
        asked.append(fault)
        cluster.heal()
        ANSWERS[fault](handler, cluster.healed)  # type: ignore[arg-type]

    cluster.misbehave(once)
    result = gpuconsole("snapshot", "save", "s.json", "--live", "--kubeconfig", cluster.kubeconfig)
    assert (result.status, asked) == (0, [fault])


def test_a_server_that_wants_to_be_left_alone_for_longer_is_told_at_once(gpuconsole: Line, cluster: ApiServer) -> None:
    cluster.misbehave(status(429, Retry_After="90"))
    result = gpuconsole("slots", "--live", "--kubeconfig", cluster.kubeconfig)
    assert result.status == 2
    assert result.err.endswith(": the fault says 429 (HTTP 429: retry in 90s)\n")


def test_a_server_that_says_nothing_is_given_up_after_a_while(
    gpuconsole: Line, cluster: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(discovery, "PATIENCE", 0.3)
    cluster.misbehave(silence)
    result = gpuconsole("slots", "--live", "--kubeconfig", cluster.kubeconfig)
    said = f"gpuconsole: context test (http://127.0.0.1:{cluster.port}): timed out; check the server"
    assert (result.status, result.err.startswith(said)) == (2, True)


@pytest.mark.parametrize("fault", ["403", "500", "login page", "cut connection"])
def test_a_check_of_forecasts_whose_cluster_is_lost_says_since_when_and_why_and_claims_no_agreement(
    gpuconsole: Line, cluster: ApiServer, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    timer = threading.Timer(1.0, cluster.misbehave, (ANSWERS[fault],))
    monkeypatch.setattr(backend, "BEHIND", 0.5)
    timer.start()
    check = ("forecast", "--check", "--for", "3s", "--every", "200ms")
    result = gpuconsole(*check, "--live", "--kubeconfig", cluster.kubeconfig)
    timer.join()
    assert result.status == 2
    assert result.lines[0] == "no Kueue decisions to compare"
    (told,) = [line for line in (result.out + result.err).splitlines() if "Kueue's decisions since " in line]
    wanted = {"cut connection": ": ", "login page": "is it a Kubernetes API server, or a proxy?"}
    assert wanted.get(fault, f"HTTP {fault}") in told
