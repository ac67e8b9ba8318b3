"""Topology assignments in the API's form: what domains share is written once, hosts are split by their prefixes."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuconsole.model.labels import HOSTNAME
from gpuconsole.model.manifests import decode_object
from gpuconsole.model.workloads import TopologyDomain, Workload, encode, prefix_keys

HOSTS = (HOSTNAME,)


def hosts(*names: str, count: int = 1) -> list[TopologyDomain]:
    return [TopologyDomain((name,), count) for name in names]


def piece(values: list[dict[str, Any]], counts: dict[str, Any], size: int) -> dict[str, Any]:
    return {"domainCount": size, "valuesPerLevel": values, "podCounts": counts}


CASES: dict[str, tuple[tuple[str, ...], list[TopologyDomain], list[dict[str, Any]]]] = {
    "nothing": (HOSTS, [], []),
    "one domain": (HOSTS, hosts("a"), [piece([{"universal": "a"}], {"universal": 1}, 1)]),
    "a common prefix and a common suffix": (
        ("rack",),
        [TopologyDomain(("r-1-x",), 2), TopologyDomain(("r-22-x",), 3)],
        [piece([{"individual": {"prefix": "r-", "suffix": "-x", "roots": ["1", "22"]}}], {"individual": [2, 3]}, 2)],
    ),
    "that do not overlap": (
        ("rack",),
        [TopologyDomain(("ababa",), 1), TopologyDomain(("aba",), 1)],
        [piece([{"individual": {"suffix": "aba", "roots": ["ab", ""]}}], {"universal": 1}, 2)],
    ),
    "levels one by one": (
        ("block", "rack"),
        [TopologyDomain(("b", "r1"), 1), TopologyDomain(("b", "r2"), 1)],
        [
            piece(
                [{"universal": "b"}, {"individual": {"prefix": "r", "roots": ["1", "2"]}}],
                {"universal": 1},
                2,
            )
        ],
    ),
}


@pytest.mark.parametrize(("levels", "domains", "want"), CASES.values(), ids=CASES)
def test_what_domains_share_is_written_once(
    levels: tuple[str, ...], domains: list[TopologyDomain], want: list[dict[str, Any]]
) -> None:
    assert encode(levels, domains) == {"levels": list(levels), "slices": want}


def test_many_hosts_are_split_by_prefix_if_that_is_shorter() -> None:
    pools = [f"cluster-pool-{pool}-0123456789abcdef-{node}" for pool in "abcd" for node in range(30)]
    assert [piece["domainCount"] for piece in encode(HOSTS, hosts(*pools))["slices"]] == [30, 30, 30, 30]
    assert [piece["domainCount"] for piece in encode(HOSTS, hosts(*pools), by_prefix=False)["slices"]] == [120]
    few = [f"p{pool}-{node}" for pool in range(6) for node in range(2)]
    assert [piece["domainCount"] for piece in encode(HOSTS, hosts(*few))["slices"]] == [12]


def test_a_prefix_counts_if_another_host_has_it() -> None:
    assert prefix_keys(["a-b-1", "a-b-2", "a-c-1", "d-1", "e"]) == ["a-b-", "a-b-", "a-", "", ""]


def test_too_many_runs_take_shorter_prefixes() -> None:
    names = [f"p-{pool}-{node}" for node in range(2) for pool in range(600)]
    assert set(prefix_keys(names)) == {"p-"}


names = st.text("ab-1", min_size=1, max_size=6)


@given(st.lists(st.tuples(st.tuples(names, names), st.integers(1, 3)), max_size=8), st.booleans())
def test_what_is_written_is_read_back(listed: list[tuple[tuple[str, str], int]], by_prefix: bool) -> None:
    domains = [TopologyDomain(values, count) for values, count in listed]
    assignment = {"name": "main", "topologyAssignment": encode(("rack", HOSTNAME), domains, by_prefix=by_prefix)}
    body = {"metadata": {"name": "w"}, "status": {"admission": {"podSetAssignments": [assignment]}}}
    read = decode_object({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", **body}, now=0)
    assert isinstance(read, Workload)
    assert read.admission is not None
    assert list(read.admission.pod_sets[0].topology) == domains
