"""How often a what-if of a submission says what Kueue then did: recordings of real clusters, replayed.

`python -m tests.tools.rehearsals FILE.jsonl.gz ...` stops just before each recorded submission that preempted others,
asks the what-if of that submission which workloads it preempts, which flavors it gets and when, and compares the answer
with the facts. The what-if is the console's: a fork of the cluster, with the queues of Kueue as a shadow reconstructs
them. Each miss is printed with what happened in the cluster between the submission and Kueue's last preemption for it.
"""

from argparse import ArgumentParser
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from gpuconsole.insight.forecast.decisions import AdmissionFact, workload_facts
from gpuconsole.insight.whatif.whatif import WhatIf, prepare, what_if_steps
from gpuconsole.model.clock import SECOND, Span, Time
from gpuconsole.model.commands import Submit
from gpuconsole.model.cooperative import run_to_end
from gpuconsole.model.events import Applied, Deleted
from gpuconsole.model.job import Job
from gpuconsole.model.state import ClusterState
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue.observation import Observation
from gpuconsole.scheduling.kueue.session import KueueSession
from gpuconsole.sim.engine import Simulation
from gpuconsole.sim.live_base import LiveBase
from gpuconsole.sim.policy import SimPolicy
from gpuconsole.sim.run_times import MEASURED
from tests.support.shared_material import CONFORMANCE
from tests.tools.recorded import played, policy_of

SOON: Span = 3 * SECOND
"""Preemptions within this time of the submission, and before the workload's first admission, are its own."""
HORIZON: Span = 30 * SECOND
TOLERANCE: Span = 2 * SECOND
"""Largest difference of an admission time that counts as right."""


class Submission(Struct, kw_only=True):
    """What followed the submission of a job. Mutable while it is collected."""

    job: str
    created: Time
    workload: str = ""
    victims: dict[str, Time] = field(default_factory=dict)
    """Workload → time of its preemption."""
    admitted: Time | None = None
    flavors: tuple[str, ...] = ()

    def __str__(self) -> str:
        victims = (f"{key} {self._after(at)}" for key, at in sorted(self.victims.items(), key=lambda item: item[1]))
        flavors = f" in {', '.join(self.flavors)}" if self.flavors else ""
        return f"preempts {', '.join(victims) or 'no workload'}; admitted {self._after(self.admitted)}{flavors}"

    def _after(self, at: Time | None) -> str:
        return f"+{(at - self.created) / SECOND:.2f}s" if at is not None else "never"


class Rehearsal(Struct, frozen=True):
    """A submission, what the what-if just before it said, and what else happened in the cluster meanwhile."""

    fact: Submission
    answer: Submission
    meanwhile: tuple[str, ...] = ()
    """Workloads that arrived, ended or released quota between the submission and Kueue's last preemption for it."""

    @property
    def names_victims(self) -> bool:
        """True if the preempted workloads are the same."""
        return self.fact.victims.keys() == self.answer.victims.keys()

    @property
    def names_flavors(self) -> bool:
        """True if it gets the flavors that Kueue assigned; also if Kueue did not admit it while it was recorded."""
        return self.fact.admitted is None or self.fact.flavors == self.answer.flavors

    @property
    def is_in_time(self) -> bool:
        """True if the admission is within `TOLERANCE` of the fact."""
        fact, said = self.fact.admitted, self.answer.admitted
        return fact is None or (said is not None and abs(fact - said) <= TOLERANCE)

    def misses(self) -> list[str]:
        """What the answer did not say right, in words."""
        rights = {"victims": self.names_victims, "flavors": self.names_flavors, "time": self.is_in_time}
        return [what for what, right in rights.items() if not right]


class RehearsalScore(Struct, frozen=True):
    """How often the what-ifs of one recording were right."""

    rehearsals: tuple[Rehearsal, ...]

    @property
    def victims(self) -> int:
        """Answers that named exactly the victims."""
        return sum(one.names_victims for one in self.rehearsals)

    @property
    def flavors(self) -> int:
        """Answers that named the flavors."""
        return sum(one.names_flavors for one in self.rehearsals)

    @property
    def in_time(self) -> int:
        """Answers whose admission was within `TOLERANCE`."""
        return sum(one.is_in_time for one in self.rehearsals)

    def __str__(self) -> str:
        total = len(self.rehearsals)
        return (
            f"{total} submissions that preempted: victims right in {self.victims} ({self.victims / total:.0%}), "
            f"flavors in {self.flavors} ({self.flavors / total:.0%}), "
            f"admission within {TOLERANCE // SECOND}s in {self.in_time} ({self.in_time / total:.0%})"
        )


class _Facts:
    """What Kueue decided in a recording about the jobs that were created in it, and when other workloads changed."""

    def __init__(self, path: Path) -> None:
        self.submissions: dict[str, Submission] = {}
        """By the key of the job."""
        self._known: dict[str, Workload] = {}
        self._by_uid: dict[str, Submission] = {}
        self._changes: list[tuple[Time, str]] = []
        """Arrivals, ends and releases of quota."""
        preempted: list[tuple[Time, AdmissionFact]] = []
        for now, events in played(path):
            for event in events:
                match event:
                    case Applied(_, Job() as job) if job.key not in self.submissions:
                        self.submissions[job.key] = Submission(job=job.key, created=now)
                    case Applied(_, Workload() as workload):
                        preempted += self._note(workload, now)
                    case _:
                        pass
        for now, fact in preempted:
            by = self._by_uid.get(fact.by)
            if by is not None and now - by.created < SOON and (by.admitted is None or now <= by.admitted):
                by.victims.setdefault(fact.workload, now)

    def _note(self, workload: Workload, now: Time) -> Iterator[tuple[Time, AdmissionFact]]:
        """Note a change of a workload; yields its preemption, if it is one."""
        known, subject = self._known.get(workload.key), self.submissions.get(workload.owner)
        if subject is not None:
            subject.workload = workload.key
            self._by_uid[workload.uid] = subject
        for fact in workload_facts(known, workload):
            if fact.preempted:
                yield now, fact
            elif subject is not None and subject.admitted is None:
                subject.admitted, subject.flavors = now, _flavors(workload)
        if known is None:
            self._changes.append((now, f"{workload.key} arrives"))
        elif workload.finished and not known.finished:
            self._changes.append((now, f"{workload.key} ends"))
        elif known.reserved and not workload.reserved:
            self._changes.append((now, f"{workload.key} releases its quota"))
        self._known[workload.key] = workload

    def meanwhile(self, subject: Submission) -> Iterator[str]:
        """Yield what happened to other workloads up to the last preemption for this one."""
        until = max(subject.victims.values(), default=subject.created)
        for at, what in self._changes:
            if subject.created <= at <= until and not what.startswith(f"{subject.workload} "):
                yield f"{what} +{(at - subject.created) / SECOND:.2f}s"


def _flavors(workload: Workload) -> tuple[str, ...]:
    """The flavors of an admitted workload, as a what-if lists them."""
    pod_sets = workload.admission.pod_sets if workload.admission is not None else ()
    return tuple(sorted({flavor for pod_set in pod_sets for flavor in pod_set.flavors.values()}))


class _FollowedCluster:
    """A recorded cluster as a console that follows it knows it. Mutates by `follow`."""

    def __init__(self, policy: SimPolicy) -> None:
        assert policy.kueue is not None
        self._policy, self._state = policy, ClusterState()
        self._observation = Observation(KueueSession(policy.kueue))
        self._is_begun = False

    def has_job(self, key: str) -> bool:
        return self._state.get(Job, key) is not None

    def follow(self, now: Time, events: Iterable[Applied | Deleted]) -> None:
        """Apply changes; the first ones are the objects at the begin."""
        for event in events:
            self._state.apply(event)
            if self._is_begun:
                self._observation.follow(event, now)
            else:
                self._observation.apply(event, now)
        if not self._is_begun:
            self._observation.update_queues(now)
            self._is_begun = True

    def what_if(self, job: Job, now: Time) -> WhatIf:
        """Answer what happens if this job is submitted now."""
        self._state.time = now
        found, base = self._state.freeze(), LiveBase(self._policy, seed=0)
        run_to_end(base.update_with_observation((found, self._observation)))
        simulation = run_to_end(Simulation.from_live_base(base))
        run_to_end(prepare(simulation, found))
        submit = Submit((replace(job, suspended=True),))
        *_, last = what_if_steps(simulation, [submit], HORIZON, found=found)
        assert last.answer is not None
        return last.answer


def _answer_about(job: str, answer: WhatIf) -> Submission:
    """What a what-if says about a submitted job."""
    (outcome,) = answer.outcomes
    own = [one for one in answer.evictions if one.by == outcome.workload and one.time - answer.time < SOON]
    return Submission(
        job=job,
        created=answer.time,
        workload=outcome.workload,
        victims={one.workload: one.time for one in reversed(own)},
        admitted=outcome.admitted,
        flavors=outcome.flavors,
    )


def rehearse(path: Path, jobs: Collection[str] = ()) -> RehearsalScore:
    """Ask the what-if of each of these submissions (default: those that preempted others) just before it."""
    facts = _Facts(path)
    subjects = {key: one for key, one in facts.submissions.items() if (key in jobs if jobs else one.victims)}
    cluster, found = _FollowedCluster(replace(policy_of(path), latencies=MEASURED)), []
    for now, events in played(path):
        for event in events:
            job = event.object if isinstance(event, Applied) else None
            if isinstance(job, Job) and job.key in subjects and not cluster.has_job(job.key):
                fact = subjects[job.key]
                answer = _answer_about(job.key, cluster.what_if(job, now))
                found.append(Rehearsal(fact, answer, tuple(facts.meanwhile(fact))))
        cluster.follow(now, events)
    return RehearsalScore(tuple(found))


def main() -> None:
    """Print the counts of each recording, and each miss."""
    parser = ArgumentParser(description=__doc__)
    shared = sorted((CONFORMANCE / "live").glob("*.jsonl.gz")) if CONFORMANCE is not None else []
    parser.add_argument("files", nargs="*", type=Path, default=shared)
    for path in parser.parse_args().files:
        score = rehearse(path)
        print(f"{path.name}: {score}")
        for one in (one for one in score.rehearsals if one.misses()):
            print(f"  {one.fact.job}: not right: {', '.join(one.misses())}")
            print(f"    Kueue    {one.fact}\n    what-if  {one.answer}")
            print(f"    meanwhile: {'; '.join(one.meanwhile) or 'nothing'}")


if __name__ == "__main__":
    main()
