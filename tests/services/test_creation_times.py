"""Creation times of submitted objects: the moment of submission, however long their form was open."""

from gpuconsole.backends.simulated import SimulatedBackend
from gpuconsole.model.clock import MINUTE
from gpuconsole.model.commands import Submit
from gpuconsole.services.console import Console
from tests.support.contended_cluster import simulation

MANIFEST = """
apiVersion: batch/v1
kind: Job
metadata: {name: from-form, namespace: team, labels: {kueue.x-k8s.io/queue-name: lq}}
spec:
  suspend: true
  template:
    spec:
      restartPolicy: Never
      containers: [{name: main, image: x, resources: {limits: {nvidia.com/gpu: 1}}}]
"""


def test_a_job_and_its_workload_are_created_when_the_job_is_submitted() -> None:
    console = Console(SimulatedBackend(simulation(), speed=60))
    console.tick(0)
    opened, checked = console.snapshot.time, console.check(MANIFEST)
    console.tick(10)
    submitted = console.snapshot.time
    console.submit(Submit(checked.objects))
    console.tick(0.1)
    created = [
        *(one.created for one in console.snapshot.jobs.all() if one.name == "from-form"),
        *(one.created for one in console.snapshot.workloads.all() if one.owner == "Job/team/from-form"),
    ]
    assert submitted >= opened + 9 * MINUTE
    assert created == [submitted] * 2
