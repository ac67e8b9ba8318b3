"""What cannot be read of a live cluster is missing, and counted; it takes nothing else with it."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from gpuconsole.backends.kube.decode import Decoder, Item
from gpuconsole.backends.kube.discovery import Served
from gpuconsole.model.cluster import Node
from tests.backends.kube.conftest import Sight
from tests.support import api_documents
from tests.support.api_server import ApiServer

NOW = 1_767_600_000_000_000
NODES = Served(group="", version="v1", kind="Node", plural="nodes", namespaced=False)


def odd(name: str) -> dict[str, Any]:
    """A node that has a name and makes no sense."""
    return {"metadata": {"name": name, "labels": 7}, "spec": 7, "status": [7]}


@pytest.mark.parametrize(
    "raw",
    [b"7", b"[]", b'{"kind": "Node"}', b'{"metadata": 7}', b'{"metadata": {"labels": {}}}', b'{"metadata": {"name": ['],
)
def test_a_document_without_a_name_is_told_and_left_out(raw: bytes) -> None:
    decoder = Decoder(NODES)
    assert decoder.item(raw, NOW) == Item("", "", None, unread=True)
    after = decoder.item(msgspec.json.encode(api_documents.node("n1")), NOW)
    assert (after.key, after.unread) == ("n1", False)


def test_the_sight_says_how_many_and_the_others_are_there(api: ApiServer, sight: Callable[..., Sight]) -> None:
    api.put("nodes", api_documents.node("n1"))
    api.put("nodes", odd("odd"))
    api.objects["nodes"]["/nameless"] = {"metadata": {}}
    see = sight()
    snapshot = see.loaded()
    assert "n1" in snapshot.nodes
    assert see.backend.health.unread == ("2 of nodes could not be read",)


def test_a_kind_some_of_whose_objects_cannot_be_read_is_not_wholly_seen(
    api: ApiServer, sight: Callable[..., Sight]
) -> None:
    api.put("nodes", api_documents.node("n1"))
    api.put("nodes", odd("odd"))
    see = sight()
    see.loaded()
    seen = see.backend.snapshot().seen
    assert (seen.missing_reasons(Node), seen.is_unlisted(Node), seen.decisive_gaps) == (
        ("1 of nodes could not be read",),
        False,
        ("1 of nodes could not be read",),
    )
    api.put("nodes", api_documents.node("odd"))
    see.until(lambda s: "odd" in s.nodes and see.backend.seen.all_of(Node))


def test_what_was_mended_or_deleted_counts_no_more(api: ApiServer, sight: Callable[..., Sight]) -> None:
    for name in ("mended", "gone", "stays"):
        api.put("nodes", odd(name))
    see = sight()
    see.loaded()
    assert see.backend.health.unread == ("3 of nodes could not be read",)
    api.put("nodes", api_documents.node("mended"))
    api.delete("nodes", "/gone")
    see.until(lambda s: "mended" in s.nodes and see.backend.health.unread == ("1 of nodes could not be read",))


def test_a_new_list_is_counted_anew(api: ApiServer, sight: Callable[..., Sight]) -> None:
    api.put("nodes", api_documents.node("n1"))
    api.put("nodes", odd("gone"))
    api.put("nodes", odd("stays"))
    api.objects["nodes"]["/nameless"] = {"metadata": {}}
    see = sight()
    see.loaded()
    assert see.backend.health.unread == ("3 of nodes could not be read",)
    del api.objects["nodes"]["/gone"]
    del api.objects["nodes"]["/nameless"]
    api.put("nodes", api_documents.node("n2"))
    api.expire()
    api.cut("nodes")
    see.until(lambda s: "n2" in s.nodes and see.backend.health.unread == ("1 of nodes could not be read",))


def test_a_list_of_which_nothing_has_a_name_takes_nothing_away(api: ApiServer, sight: Callable[..., Sight]) -> None:
    api.put("nodes", api_documents.node("n1"))
    see = sight()
    see.loaded()
    kept = dict(api.objects["nodes"])
    api.objects["nodes"] = {"/nameless": {"metadata": {}}}
    api.expire()
    api.cut("nodes")
    assert "n1" in see.until(lambda _: see.backend.health.unread == ("1 of nodes could not be read",)).nodes
    api.objects["nodes"] = kept
    assert "n1" in see.until(lambda _: see.backend.health.unread == ()).nodes


def test_what_is_mended_without_an_event_is_read_again_before_long(api: ApiServer, sight: Callable[..., Sight]) -> None:
    for name in ("n1", "n2"):
        api.put("nodes", odd(name))
    see = sight()
    see.loaded()
    assert see.backend.health.unread == ("2 of nodes could not be read",)
    for name in ("n1", "n2"):
        version = api.objects["nodes"][f"/{name}"]["metadata"]["resourceVersion"]
        mended = api_documents.node(name)
        mended["metadata"]["resourceVersion"] = version
        api.objects["nodes"][f"/{name}"] = mended
    snapshot = see.until(lambda _: see.backend.health.unread == ())
    assert sorted(snapshot.nodes) == ["n1", "n2"]
