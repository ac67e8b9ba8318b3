"""What the console sees of a real API server: everything that it may, every change, and what it may not by name."""

import itertools
import re
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuconsole.backends.kube.watch import WatchTimings
from gpuconsole.model.clock import SECOND
from tests.live import stock
from tests.live.api import Api, until
from tests.live.controlplane import ControlPlane
from tests.live.identities import ADMIN, NOBODY, NODELESS, OPERATOR, READER, VIEWER, Identity
from tests.live.paths import JOBS
from tests.live.proxy import Fault, Proxy
from tests.live.seeing import BRISK, Seeing

pytestmark = pytest.mark.live
MINUTE = 60.0
PAGE = 3
"""Objects a page, where pages are counted."""


@pytest.fixture(scope="module")
def cluster(busy: Api) -> Api:
    return busy


def workload_states(seeing: Seeing) -> dict[str, bool]:
    return {w.owner.rpartition("/")[2]: w.admitted for w in seeing.snapshot().workloads.all()}


class TestWhole:
    """An admin sees it all."""

    @pytest.fixture(scope="class")
    def seeing(self, plane: ControlPlane, cluster: Api) -> Iterator[Seeing]:
        with Seeing(plane.kubeconfig(ADMIN)) as seeing:
            seeing.complete()
            yield seeing

    def test_it_shows_what_is_there(self, seeing: Seeing, cluster: Api) -> None:
        snapshot = seeing.snapshot()
        assert sorted(snapshot.nodes) == [f"h100-{n:04}" for n in range(8)]
        assert {node.gpus for node in snapshot.nodes.all()} == {8}
        assert sorted(snapshot.cluster_queues) == ["cq-a", "cq-b"]
        assert sorted(snapshot.local_queues) == ["team-a/lq-a", "team-a/lq-b"]
        assert workload_states(seeing) == {"runs": True, "waits": False}
        assert [pod.phase for pod in snapshot.pods.all()] == ["Running", "Running"]

    def test_nothing_is_missing(self, seeing: Seeing) -> None:
        health = seeing.health
        assert (health.missing, health.unread, health.lost) == ((), (), "")
        assert health.readable == health.kinds

    def test_a_change_is_seen_as_it_comes(self, seeing: Seeing, cluster: Api) -> None:
        cluster.patch("/api/v1/nodes/h100-0007", {"spec": {"unschedulable": True}})
        seeing.until(lambda s: s.nodes["h100-0007"].unschedulable)
        cluster.patch("/api/v1/nodes/h100-0007", {"spec": {"unschedulable": None}})
        seeing.until(lambda s: not s.nodes["h100-0007"].unschedulable)

    def test_jobs_come_run_and_go(self, seeing: Seeing, cluster: Api) -> None:
        cluster.create(stock.job("comes", "lq-a", gpus=1))
        seeing.until(lambda s: workload_states(seeing).get("comes"))
        seeing.until(lambda s: any(pod.job.endswith("/comes") and pod.node for pod in s.pods.all()))
        cluster.delete(f"{JOBS}/comes?propagationPolicy=Background")
        seeing.until(lambda s: "comes" not in workload_states(seeing))
        seeing.until(lambda s: not any(pod.job.endswith("/comes") for pod in s.pods.all()))

    def test_what_a_cron_job_will_make_is_part_of_what_is_foreseen(self, seeing: Seeing, cluster: Api) -> None:
        due = seeing.backend.now // (60 * SECOND) % (24 * 60) + 30
        schedule = f"{due % 60} {due // 60 % 24} * * *"
        cluster.create(stock.cron_job("nightly", schedule, "lq-a", gpus=1))
        try:
            seeing.until(lambda s: "CronJob/team-a/nightly" in s.jobs)
            fork = seeing.backend.fork()
            fork.advance(fork.now + 31 * 60 * SECOND)
            made = [job for job in fork.snapshot().jobs.all() if job.owner == "CronJob/team-a/nightly"]
            assert [(job.kind, job.queue) for job in made] == [("Job", "lq-a")]
        finally:
            cluster.delete("/apis/batch/v1/namespaces/team-a/cronjobs/nightly")


class TestRights:
    """What is forbidden is named, and nothing that is forbidden looks like nothing."""

    @pytest.mark.parametrize(
        ("who", "namespaces", "forbidden"),
        [
            (READER, (), set[str]()),
            (NODELESS, (), {"nodes"}),
            (VIEWER, ("team-a",), {"nodes", "clusterqueues", "resourceflavors"}),
            (NOBODY, (), {"nodes", "pods", "clusterqueues", "workloads"}),
        ],
        ids=lambda value: value.name if isinstance(value, Identity) else "",
    )
    def test_what_is_missing_is_named(
        self, plane: ControlPlane, cluster: Api, who: Identity, namespaces: tuple[str, ...], forbidden: set[str]
    ) -> None:
        with Seeing(plane.kubeconfig(who), namespaces=namespaces) as seeing:
            snapshot = seeing.complete()
            missing = {right.resource for right in seeing.health.missing}
            assert forbidden <= {name.partition(".")[0] for name in missing}
            assert bool(missing) == bool(forbidden)
            assert len(snapshot.nodes) == (0 if "nodes" in forbidden else 8)
            if "workloads" not in forbidden:
                seeing.until(lambda s: workload_states(seeing) == {"runs": True, "waits": False})


class TestGentle:
    """The audit log shows how much was asked of the API server."""

    def test_lists_are_as_many_as_there_are_kinds_and_none_follow(self, plane: ControlPlane, cluster: Api) -> None:
        log = plane.audit.skip()
        with Seeing(plane.kubeconfig(READER)) as seeing:
            seeing.complete()
            begun = [request.request_uri for request in log.requests("reader")]
            watches = [uri for uri in begun if "watch=" in uri]
            # Streaming lists come through the watch itself: where there is one, there is no LIST.
            assert len(log.lists("reader")) + len(watches) <= 2 * seeing.health.kinds
            log.skip()
            cluster.patch("/api/v1/nodes/h100-0006", {"metadata": {"annotations": {"touched": "again"}}})
            seeing.until(lambda s: s.nodes["h100-0006"].annotations.get("touched") == "again")
            assert [request.request_uri for request in log.requests("reader")] == []
        assert log.writes("reader") == []

    def test_at_rest_hardly_anything_is_asked_and_nothing_is_listed(self, plane: ControlPlane, cluster: Api) -> None:
        with Seeing(plane.kubeconfig(READER)) as seeing:
            seeing.complete()
            log = plane.audit.skip()
            time.sleep(MINUTE)
            assert log.lists("reader") == []
            assert len(list(log.requests("reader"))) < 10
            assert not seeing.health.lost

    def test_where_lists_do_not_stream_they_are_as_many_as_the_pages_needed(
        self, plane: ControlPlane, proxy: Proxy, cluster: Api
    ) -> None:
        proxy.do(Fault(match="sendInitialEvents", status=400))
        log = plane.audit.skip()
        with Seeing(plane.kubeconfig(READER, proxy.server), pace=WatchTimings(page=PAGE)) as seeing:
            assert len(seeing.complete().nodes) == 8
            pages = Counter(request.resource for request in log.lists("reader"))
            assert (pages["nodes"], pages["clusterqueues"], pages["cohorts"]) == (3, 1, 1)


class TestTrouble:
    """Servers die, hang and answer nonsense; the console is right again without a key press."""

    @pytest.fixture
    def seeing(self, plane: ControlPlane, proxy: Proxy, cluster: Api) -> Iterator[Seeing]:
        with Seeing(plane.kubeconfig(READER, proxy.server), pace=BRISK, quiet=1.0) as seeing:
            seeing.complete()
            yield seeing

    def touch(self, cluster: Api, value: str) -> None:
        cluster.patch("/api/v1/nodes/h100-0005", {"metadata": {"annotations": {"trouble": value}}})

    def right_again(self, seeing: Seeing, value: str) -> None:
        seeing.until(lambda s: s.nodes["h100-0005"].annotations.get("trouble") == value)
        seeing.healthy()
        assert len(seeing.snapshot().nodes) == 8

    def test_watches_that_are_cut_in_the_middle_of_a_line_go_on(
        self, seeing: Seeing, proxy: Proxy, cluster: Api
    ) -> None:
        lists = sum(1 for seen in proxy.seen if not seen.is_watch)
        assert proxy.cut_watches() > 5
        self.touch(cluster, "cut")
        self.right_again(seeing, "cut")
        assert sum(1 for seen in proxy.seen if not seen.is_watch) <= lists + 3, "nothing is listed anew"

    def test_a_version_that_is_too_old_is_listed_anew(self, seeing: Seeing, proxy: Proxy, cluster: Api) -> None:
        assert proxy.expire_watches(r"/nodes\?") == 1
        self.touch(cluster, "expired")
        self.right_again(seeing, "expired")

    def test_410_instead_of_a_watch_is_listed_anew(self, seeing: Seeing, proxy: Proxy, cluster: Api) -> None:
        proxy.do(Fault(match=r"GET /api/v1/nodes\?.*watch", status=410, times=1))
        assert proxy.cut_watches(r"/nodes\?") == 1
        self.touch(cluster, "gone")
        self.right_again(seeing, "gone")

    @pytest.mark.parametrize("status", [429, 500, 503])
    def test_a_server_that_is_overloaded_is_asked_later(
        self, seeing: Seeing, proxy: Proxy, cluster: Api, status: int
    ) -> None:
        proxy.do(Fault(match=r"GET /api/v1/nodes\?", status=status, retry_after=1, times=3))
        proxy.cut_watches(r"/nodes\?")
        self.touch(cluster, f"busy-{status}")
        self.right_again(seeing, f"busy-{status}")
        refused = [seen.at for seen in proxy.seen if seen.status == status]
        assert len(refused) == 3
        if status == 429:
            assert all(later - earlier >= 1.0 for earlier, later in itertools.pairwise(refused))

    @pytest.mark.parametrize("status", [429, 500])
    def test_a_server_that_refuses_everything_for_a_while_is_not_stormed(
        self, seeing: Seeing, proxy: Proxy, cluster: Api, status: int
    ) -> None:
        asked = len(proxy.seen)
        proxy.do(Fault(match="", status=status, retry_after=1))
        cut = proxy.cut_watches()
        until(lambda: seeing.health.lost)
        time.sleep(5)
        assert len(seeing.snapshot().nodes) == 8, "what was known is shown still"
        assert len(proxy.seen) - asked < 12 * cut
        proxy.heal()
        self.touch(cluster, f"healed-{status}")
        self.right_again(seeing, f"healed-{status}")

    def test_a_network_that_hangs_is_noticed_and_waited_for(self, seeing: Seeing, proxy: Proxy, cluster: Api) -> None:
        proxy.hang()
        self.touch(cluster, "hung")
        until(lambda: seeing.health.lost)
        assert len(seeing.snapshot().nodes) == 8, "what was known is shown still"
        proxy.heal()
        self.right_again(seeing, "hung")

    def test_the_api_server_is_killed_and_comes_back(self, plane: ControlPlane, seeing: Seeing, cluster: Api) -> None:
        plane.apiserver.kill()
        until(lambda: seeing.health.lost)
        plane.start_apiserver()
        self.touch(cluster, "killed")
        self.right_again(seeing, "killed")

    def test_the_api_server_hangs_for_a_while(self, plane: ControlPlane, seeing: Seeing, cluster: Api) -> None:
        plane.apiserver.pause()
        try:
            until(lambda: seeing.health.lost)
        finally:
            plane.apiserver.resume()
        self.touch(cluster, "resumed")
        self.right_again(seeing, "resumed")

    def test_the_api_server_hangs_for_a_minute(self, plane: ControlPlane, seeing: Seeing, cluster: Api) -> None:
        plane.apiserver.pause()
        try:
            until(lambda: seeing.health.lost)
            seen = len(seeing.snapshot().nodes)
            time.sleep(MINUTE)
            assert seeing.health.lost
            assert seeing.health.age > MINUTE
            assert (len(seeing.snapshot().nodes), seen) == (8, 8), "what was known is shown still"
            assert seeing.health.requests < 30, "a server that hangs is not stormed"
        finally:
            plane.apiserver.resume()
        self.touch(cluster, "resumed late")
        self.right_again(seeing, "resumed late")

    def test_a_token_that_expires_is_replaced(
        self, plane: ControlPlane, proxy: Proxy, cluster: Api, tmp_path: Path
    ) -> None:
        token = tmp_path / "token"
        token.write_text(READER.token)
        log = plane.audit.skip()
        with Seeing(plane.kubeconfig_by_plugin(token, proxy.server), pace=BRISK, quiet=1.0) as seeing:
            seeing.complete()
            token.write_text(OPERATOR.token)
            proxy.do(Fault(match="", token=READER.token, status=401))
            proxy.cut_watches()
            self.touch(cluster, "renewed")
            self.right_again(seeing, "renewed")
            assert not seeing.health.missing
        assert [request.verb for request in log.requests("operator")][:1] == ["watch"]

    def test_what_is_deleted_while_nobody_looks_is_gone_afterwards(
        self, seeing: Seeing, proxy: Proxy, cluster: Api, plane: ControlPlane
    ) -> None:
        cluster.create({**stock.node("passing"), "status": {}})
        seeing.until(lambda s: "passing" in s.nodes)
        proxy.do(Fault(match=r"GET /api/v1/nodes\?.*watch", status=410, times=1))
        proxy.cut_watches(r"/nodes\?")
        cluster.delete("/api/v1/nodes/passing")
        seeing.until(lambda s: "passing" not in s.nodes)
        assert re.fullmatch(r"(h100-\d{4},?)+", ",".join(seeing.snapshot().nodes))
