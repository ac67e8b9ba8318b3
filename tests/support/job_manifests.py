"""Manifests of jobs and services for the simulation's tests, read as files are."""

import json
from typing import Any

from gpuconsole.model.manifests.loading import load_text
from gpuconsole.model.objects import Object

QUEUE = "kueue.x-k8s.io/queue-name"
Manifest = dict[str, Any]


def read(*documents: Manifest) -> tuple[Object, ...]:
    """The objects of these documents, which have nothing that the API server would refuse."""
    loaded = load_text(dumps(*documents), "test.yaml", strict=True)
    assert [finding for finding in loaded.findings if finding.severity.value == "error"] == []
    return loaded.objects


def meta(name: str, *, queue: str = "", **notes: str) -> Manifest:
    """Metadata in the namespace red; `notes` are our annotations, such as duration="1h"."""
    found: Manifest = {"name": name, "namespace": "red"}
    if queue:
        found["labels"] = {QUEUE: queue}
    if notes:
        found["annotations"] = {f"gpuconsole.io/{key.replace('_', '-')}": value for key, value in notes.items()}
    return found


def pod(gpus: int = 1, *, restart: str = "", labels: dict[str, str] | None = None, **notes: str) -> Manifest:
    """A template of one container."""
    limits = {"limits": {"nvidia.com/gpu": str(gpus)}} if gpus else {}
    spec: Manifest = {"containers": [{"name": "main", "image": "example.com/work:1", "resources": limits}]}
    if restart:
        spec["restartPolicy"] = restart
    template: Manifest = {"spec": spec}
    if labels or notes:
        template["metadata"] = {
            "labels": labels or {},
            "annotations": {f"gpuconsole.io/{key}": value for key, value in notes.items()},
        }
    return template


def job(name: str, parallelism: int = 1, completions: int | None = None, *, queue: str = "", **more: Any) -> Manifest:
    """A batch/v1 Job of an hour, unless it says something else."""
    notes = more.pop("notes", {"duration": "1h"})
    spec: Manifest = {"parallelism": parallelism, "template": more.pop("template", pod(restart="Never")), **more}
    if completions is not None:
        spec["completions"] = completions
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta(name, queue=queue, **notes), "spec": spec}


def service(kind: str, name: str, replicas: int, *, queue: str = "", **more: Any) -> Manifest:
    """A Deployment or a StatefulSet of pods with one GPU."""
    labels = {"app": name}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": pod(labels=labels), **more}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": meta(name, queue=queue), "spec": spec}


def worker_set(name: str, replicas: int, size: int, *, queue: str = "", led: bool = True, **more: Any) -> Manifest:
    """A LeaderWorkerSet whose workers have a GPU each, and whose leader has none."""
    group: Manifest = {"size": size, "workerTemplate": pod(), **more}
    if led:
        group["leaderTemplate"] = pod(0)
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": meta(name, queue=queue),
        "spec": {"replicas": replicas, "leaderWorkerTemplate": group},
    }


def dumps(*documents: Manifest) -> str:
    """The documents as the text of one file."""
    return "\n---\n".join(map(json.dumps, documents))
