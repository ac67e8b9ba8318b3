"""Objects that have only a generateName: each gets a name of its own, formed as the API server forms it."""

import json
import re
from typing import Any

from gpuconsole.model.clock import MINUTE
from gpuconsole.model.documents.metadata import GeneratedNames, generated_name
from gpuconsole.model.job import Job
from gpuconsole.model.manifests import decode_objects, load_text
from gpuconsole.model.queues import LocalQueue
from gpuconsole.sim.scenario import build_simulation, load_scenario
from tests.support.sample_manifests import errors_and_warnings

Manifest = dict[str, Any]
SUFFIX = re.compile("[bcdfghjklmnpqrstvwxz2456789]{5}")


def job(prefix: str = "train-", **meta: str) -> Manifest:
    container = {"name": "main", "image": "x", "resources": {"limits": {"nvidia.com/gpu": 1}}}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    meta = {"generateName": prefix, "namespace": "team", **meta}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": {"template": template}}


def queue(prefix: str) -> Manifest:
    meta = {"generateName": prefix, "namespace": "team"}
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "LocalQueue",
        "metadata": meta,
        "spec": {"clusterQueue": "cq"},
    }


def text_of(*documents: Manifest) -> str:
    return "\n---\n".join(map(json.dumps, documents))


def names(*documents: Manifest) -> list[str]:
    return [thing.name for thing in load_text(text_of(*documents), "a.yaml").objects]


def test_two_objects_with_one_generate_name_are_two_objects() -> None:
    text = text_of(job(), job(), queue("q-"), queue("q-"), {"kind": "List", "apiVersion": "v1", "items": [job()]})
    loaded = load_text(text, "a.yaml", strict=True)
    jobs = [thing.name for thing in loaded.objects if isinstance(thing, Job)]
    queues = [thing.name for thing in loaded.objects if isinstance(thing, LocalQueue)]
    assert (len(set(jobs)), len(set(queues))) == (3, 2)
    assert all(name.startswith("train-") and SUFFIX.fullmatch(name[6:]) for name in jobs)
    assert all(name.startswith("q-") and SUFFIX.fullmatch(name[2:]) for name in queues)
    assert [code for _, _, code in errors_and_warnings(text)] == ["undefined-clusterqueue"] * 2


def test_the_same_manifests_get_the_same_names() -> None:
    assert names(job(), job("eval-"), job()) == names(job(), job("eval-"), job())


def test_a_prefix_is_not_completed_by_a_dash_and_cut_to_58_characters() -> None:
    (short,) = names(job("x"))
    (long,) = names(job("a" * 80))
    assert (short[0], len(short)) == ("x", 6)
    assert (long[:58], len(long)) == ("a" * 58, 63)


def test_prefixes_that_are_cut_to_the_same_text_give_different_names() -> None:
    assert len(set(names(job("a" * 58 + "x"), job("a" * 58 + "y")))) == 2


def test_no_name_of_a_prefix_comes_twice_among_many() -> None:
    assert len({generated_name("job-", number) for number in range(100_000)}) == 100_000


def test_a_name_stands_and_counts_for_nothing() -> None:
    first, named, second = names(job(), job(name="own"), job())
    assert named == "own"
    assert [first, second] == names(job(), job())


def test_objects_of_a_scenario_its_steps_and_files_beside_it_are_all_different() -> None:
    scenario = {"objects": [job(), job()], "steps": [{"create": [job()]}, {"create": [job(), job()]}]}
    beside = load_text(text_of(job(), job()), "a.yaml").objects
    read = load_scenario([scenario], objects=beside)
    simulation = build_simulation(read)
    simulation.advance(read.start + MINUTE)
    assert len(simulation.snapshot().jobs) == 7


def test_what_is_submitted_later_has_another_name() -> None:
    (first,) = load_text(json.dumps(job()), now=10).objects
    (second,) = load_text(json.dumps(job()), now=20).objects
    assert first.name != second.name


def test_documents_that_are_read_without_findings_are_named_the_same_way() -> None:
    things, unread = decode_objects([job(), job()])
    assert [thing.name for thing in things] == names(job(), job())
    assert unread == ()


def test_only_a_text_is_a_prefix() -> None:
    odd: list[Manifest] = [{"metadata": {"generateName": 5}}, {"metadata": {"generateName": ""}}, {"metadata": []}, {}]
    assert [GeneratedNames().named(document) for document in odd] == odd
