"""What cannot be read of a live cluster is missing, and counted; it takes nothing else with it."""

from collections.abc import Callable

import msgspec
import pytest

from gpuconsole.backends.kube.decode import Decoder
from gpuconsole.backends.kube.discovery import Served
from tests.backends.kube import documents
from tests.backends.kube.apiserver import ApiServer
from tests.backends.kube.conftest import Sight

NOW = 1_767_600_000_000_000
NODES = Served(group="", version="v1", kind="Node", plural="nodes", namespaced=False)


@pytest.mark.parametrize(
    "raw",
    [b"7", b"[]", b'{"kind": "Node"}', b'{"metadata": 7}', b'{"metadata": {"labels": {}}}', b'{"metadata": {"name": ['],
)
def test_a_document_without_a_name_is_counted_and_left_out(raw: bytes) -> None:
    decoder = Decoder(NODES)
    assert decoder.item(raw, NOW).thing is None
    assert decoder.unread == 1
    assert decoder.item(msgspec.json.encode(documents.node("n1")), NOW).key == "n1"
    assert decoder.unread == 1


def test_the_sight_says_how_many_and_the_others_are_there(api: ApiServer, sight: Callable[..., Sight]) -> None:
    api.put("nodes", documents.node("n1"))
    api.put("nodes", {"metadata": {"name": "odd", "labels": 7}, "spec": 7, "status": [7]})
    api.objects["nodes"]["/nameless"] = {"metadata": {}}
    see = sight()
    snapshot = see.loaded()
    assert "n1" in snapshot.nodes
    assert see.backend.health.unread == ("2 of nodes could not be read",)
