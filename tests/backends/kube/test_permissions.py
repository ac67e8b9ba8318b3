"""Kinds that RBAC denies: one small request in all finds out that one of them is allowed by now."""

import time
from collections import Counter
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from gpuconsole.backends.base import Missing
from gpuconsole.backends.kube.watch import WatchTimings
from tests.backends.kube.conftest import EAGER, Sight
from tests.support import api_documents
from tests.support.api_server import ApiServer

Make = Callable[..., Sight]
TICK = 0.2
FAST = replace(EAGER, recheck=TICK, again=600.0)
READABLE = ("clusterqueues", "localqueues", "workloads")


@pytest.fixture
def limited(api: ApiServer) -> ApiServer:
    """A cluster whose user may read queues and Workloads only."""
    api.put("nodes", api_documents.node("n0"))
    api.put("clusterqueues", api_documents.cluster_queue("cq"))
    api.forbidden = lambda verb, plural, namespace: plural not in READABLE
    return api


def asked_within(see: Sight, api: ApiServer, seconds: float) -> Counter[str]:
    """The requests of some seconds at rest."""
    until = time.monotonic() + 3 * TICK
    while time.monotonic() < until:
        see.look()
    before = api.asked + api.reviews
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        see.look()
        time.sleep(0.01)
    return api.asked + api.reviews - before


def test_a_user_with_few_rights_costs_one_request_in_seven_seconds_at_rest(limited: ApiServer, sight: Make) -> None:
    see = sight(pace=FAST)
    see.loaded()
    asked = asked_within(see, limited, 2.0)
    assert set(asked) == {"rules"}
    assert 7 <= asked["rules"] <= 12, "2 s of 0.2 s each, and chance"
    assert WatchTimings().recheck == 7.0


def test_where_the_rules_cannot_be_known_at_most_two_rights_a_second_are_reviewed(
    limited: ApiServer, sight: Make
) -> None:
    limited.knows_rules = False
    see = sight(pace=FAST)
    see.loaded()
    asked = asked_within(see, limited, 6.0)
    assert set(asked) == {"rules", "right"}
    kinds, namespaced = 6, 3
    assert asked["right"] <= 3 * (kinds + namespaced), "six kinds each three seconds; half are also asked for at home"


def test_a_right_that_was_taken_away_and_is_denied_is_not_tried_again_and_again(api: ApiServer, sight: Make) -> None:
    api.put("nodes", api_documents.node("n0"))
    see = sight(pace=FAST)
    see.loaded()
    api.forbidden = lambda verb, plural, namespace: plural == "nodes"
    api.cut("nodes")
    see.until(lambda _: see.backend.health.missing == (Missing("watch", "nodes"),))
    assert set(asked_within(see, api, 1.0)) == {"rules"}


@pytest.mark.parametrize("knows_rules", [True, False])
@pytest.mark.parametrize("taken_away", [True, False], ids=["taken away meanwhile", "never there"])
def test_one_right_that_is_granted_is_used_at_once_though_others_are_denied(
    limited: ApiServer, sight: Make, knows_rules: bool, taken_away: bool
) -> None:
    limited.knows_rules = knows_rules
    denied, limited.forbidden = limited.forbidden, (lambda *_: False) if taken_away else limited.forbidden
    see = sight(pace=FAST)
    see.loaded()
    limited.forbidden = denied
    limited.cut()
    see.until(lambda s: not s.nodes and any(right.resource == "nodes" for right in see.backend.health.missing))
    asked_within(see, limited, 1.0)
    limited.forbidden = lambda verb, plural, namespace: plural not in (*READABLE, "nodes")
    begun = time.monotonic()
    see.until(lambda s: list(s.nodes) == ["n0"])
    assert time.monotonic() - begun < (1.5 if knows_rules else 4.0)
    assert "nodes" not in {right.resource for right in see.backend.health.missing}


def test_a_right_in_another_of_the_named_namespaces_is_noticed(api: ApiServer, sight: Make) -> None:
    api.put("pods", api_documents.pod("p", namespace="two"))
    api.forbidden = lambda verb, plural, namespace: plural == "pods"
    see = sight("one", "two", pace=FAST)
    see.loaded()
    api.forbidden = lambda verb, plural, namespace: plural == "pods" and namespace == "one"
    see.until(lambda s: list(s.pods) == ["two/p"])
