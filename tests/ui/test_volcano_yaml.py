"""A Volcano Job is shown as its manifest, from which it can be read again."""

from typing import Any

import yaml

from gpuconsole.model.job import Job
from gpuconsole.model.manifests import decode_object
from gpuconsole.ui.yaml_view import as_yaml

POD = {"spec": {"schedulerName": "volcano", "containers": [{"name": "c"}]}}
DOCUMENT: dict[str, Any] = {
    "apiVersion": "batch.volcano.sh/v1alpha1",
    "kind": "Job",
    "metadata": {"namespace": "red", "name": "train"},
    "spec": {
        "schedulerName": "volcano",
        "queue": "ml",
        "priorityClassName": "high",
        "minAvailable": 3,
        "minSuccess": 1,
        "maxRetry": 5,
        "ttlSecondsAfterFinished": 600,
        "networkTopology": {"mode": "hard", "highestTierAllowed": 2},
        "plugins": {"svc": [], "ssh": ["--ssh-port=2222"]},
        "policies": [{"action": "RestartJob", "events": ["PodEvicted", "PodFailed"], "timeout": "5m"}],
        "tasks": [
            {
                "name": "master",
                "replicas": 1,
                "minAvailable": 1,
                "maxRetry": 3,
                "policies": [{"action": "AbortJob", "exitCode": 137}],
                "template": POD,
            },
            {
                "name": "worker",
                "replicas": 4,
                "minAvailable": 2,
                "maxRetry": 7,
                "dependsOn": {"name": ["master"], "iteration": "any"},
                "topologyPolicy": "restricted",
                "partitionPolicy": {"totalPartitions": 2, "partitionSize": 2, "minPartitions": 1},
                "template": POD,
            },
        ],
    },
    "status": {
        "state": {"phase": "Running", "lastTransitionTime": "2026-01-05T08:00:00Z"},
        "running": 2,
        "version": 1,
        "retryCount": 2,
        "minAvailable": 3,
        "taskStatusCount": {"worker": {"phase": {"Running": 2}}},
        "conditions": [{"status": "Running", "lastTransitionTime": "2026-01-05T08:00:00Z"}],
    },
}


def test_a_volcano_job_is_shown_as_it_was_written() -> None:
    job = decode_object(DOCUMENT)
    assert isinstance(job, Job)
    shown = yaml.safe_load(as_yaml(job))
    again = decode_object(shown)
    assert isinstance(again, Job)
    assert (again.volcano, again.volcano_status) == (job.volcano, job.volcano_status)
    assert {key: shown[key] for key in ("apiVersion", "kind", "status")} == {
        key: DOCUMENT[key] for key in ("apiVersion", "kind", "status")
    }
    assert {key: value for key, value in shown["spec"].items() if key != "tasks"} == {
        key: value for key, value in DOCUMENT["spec"].items() if key != "tasks"
    }
