"""Exit statuses: 1 is an answer that finds fault, 2 is no answer, so that a CI can tell them apart."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuconsole.backends.kube.client import RateLimiter
from gpuconsole.cli import live
from tests.support.api_server import ApiServer
from tests.support.command_line import Line

CHANGE = "steps: [{commands: [{type: set-priority, workload: a/b, priority: 5}]}]\n"
QUESTIONS = (
    ("forecast", "--check"),
    ("plan", "-f", "change.yaml"),
    ("whatif", "-f", "change.yaml"),
    ("simulate",),
    ("snapshot", "save", "s.json"),
)


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiServer]:
    monkeypatch.chdir(tmp_path)
    Path("change.yaml").write_text(CHANGE)
    api = ApiServer(tmp_path)
    yield api
    api.close()


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question[0])
def test_a_cluster_that_refuses_the_credentials_is_no_answer(
    gpuconsole: Line, cluster: ApiServer, question: tuple[str, ...]
) -> None:
    cluster.write_kubeconfig("stolen")
    result = gpuconsole(*question, "--live", "--kubeconfig", cluster.kubeconfig)
    assert (result.status, result.out) == (2, "")
    assert "HTTP 401" in result.err


def test_a_cluster_that_cannot_be_reached_is_no_answer(gpuconsole: Line, cluster: ApiServer) -> None:
    cluster.close()
    result = gpuconsole("forecast", "--check", "--live", "--kubeconfig", cluster.kubeconfig)
    assert (result.status, result.out) == (2, "")
    assert "check the server and the network" in result.err


def test_a_change_that_cannot_be_carried_out_is_an_answer(gpuconsole: Line, cluster: ApiServer) -> None:
    result = gpuconsole("whatif", "-f", "change.yaml", "--live", "--kubeconfig", cluster.kubeconfig)
    assert result.status == 1
    assert "there is no workload a/b" in result.out


def test_files_with_errors_are_findings(gpuconsole: Line, tmp_path: Path) -> None:
    file = tmp_path / "change.yaml"
    file.write_text("steps: [{commands: [{type: finish}]}]\n")
    result = gpuconsole("whatif", "three-nodes", "-f", file)
    assert result.status == 1
    assert result.err.startswith(f"gpuconsole: {file}:1: error: steps[0].commands[0]")


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question[0])
def test_every_question_keeps_to_the_requests_that_the_configuration_allows(
    gpuconsole: Line, cluster: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, question: tuple[str, ...]
) -> None:
    config = tmp_path / "config" / "gpuconsole" / "config.yaml"
    config.parent.mkdir(parents=True)
    config.write_text("live: {requests: 77, burst: 99}\n")
    allowed: list[RateLimiter] = []

    def granted(rate: float, burst: int) -> RateLimiter:
        allowed.append(RateLimiter(rate, burst))
        return allowed[-1]

    monkeypatch.setattr(live, "RateLimiter", granted)
    gpuconsole(*question, "--live", "--kubeconfig", cluster.kubeconfig)
    # The second limit is that of the telemetry sources, by default.
    assert [(budget.rate, budget.burst) for budget in allowed] == [(77, 99), (50, 50)]
