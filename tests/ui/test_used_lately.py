"""What a LocalQueue used lately: told in its description, written as the API writes it and read back."""

from msgspec.structs import replace

from gpuconsole.model.clock import parse_time
from gpuconsole.model.events import Applied
from gpuconsole.model.manifests import decode_object
from gpuconsole.model.queues import LocalQueue
from gpuconsole.model.resources import BILLIONTH, GPU
from gpuconsole.model.state import ClusterState
from gpuconsole.ui.describe import describe
from gpuconsole.ui.yaml_view import as_manifest

NOW = parse_time("2026-01-05T08:15:00Z")
QUIET = LocalQueue(namespace="ml", name="lq", cluster_queue="cq")
USED = replace(
    QUIET,
    consumed={"memory": 3 * 2**30 * BILLIONTH, GPU: 2_343_145_750, "cpu": BILLIONTH // 2},
    sampled=NOW,
    usage=2.5,
)


def described(queue: LocalQueue) -> list[str]:
    state = ClusterState(NOW)
    state.apply(Applied(NOW, queue))
    lines = describe(state.freeze(), "local_queues", queue.key)
    assert lines is not None
    return ["".join(text for text, _ in line).rstrip() for line in lines]


def test_a_local_queue_that_takes_turns_tells_what_it_used_lately() -> None:
    lines = described(USED)
    assert "Usage            2.5 (the LocalQueue with the lowest usage is admitted first)" in lines
    assert "Recent usage     nvidia.com/gpu 2.34, cpu 0.50, memory 3.00Gi" in lines


def test_one_that_used_nothing_says_so_and_one_that_takes_no_turns_is_silent() -> None:
    assert "Recent usage     none" in described(replace(QUIET, usage=0.0))
    assert not [line for line in described(replace(USED, usage=None)) if "Recent usage" in line]


def test_it_is_written_as_the_api_writes_it_and_read_back() -> None:
    manifest = as_manifest(USED)
    assert manifest["status"] == {
        "fairSharing": {
            "admissionFairSharingStatus": {
                "consumedResources": {"memory": "3221225472", "nvidia.com/gpu": "2343145750n", "cpu": "500m"},
                "lastUpdate": "2026-01-05T08:15:00Z",
            }
        }
    }
    assert decode_object(manifest, now=NOW) == replace(USED, usage=None)
    assert "status" not in as_manifest(QUIET)
    assert as_manifest(QUIET)["spec"] == manifest["spec"]


def test_what_is_no_quantity_is_left_out() -> None:
    manifest = as_manifest(USED)
    manifest["status"]["fairSharing"]["admissionFairSharingStatus"]["consumedResources"] = {"cpu": "much", GPU: 1}
    read = decode_object(manifest, now=NOW)
    assert isinstance(read, LocalQueue)
    assert read.consumed == {GPU: BILLIONTH}
