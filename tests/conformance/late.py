"""scheduler/TestScheduleForTASWhenWorkloadModifiedConcurrently: a workload whose node has no replacement is evicted."""

from collections.abc import Iterator

from msgspec.structs import replace

from gpuconsole.model.clock import SECOND
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue.config import KueueConfig
from tests.conformance import world
from tests.conformance.cycle import Cycle
from tests.conformance.events import expected_events
from tests.conformance.tables import Case, Check, Table, compare


def check_eviction(table: Table, case: Case) -> Iterator[str]:
    """One cycle, a second after the failure; labels, times and the events' texts are left out."""
    fixtures = table.fixtures
    documents = [fixtures[name] for name in ("topology", "rf", "cq", "lq")]
    for variant in case.variants or ({},):
        things = world.decode_all([fixtures["ns"], *documents, case.input["workload"]])
        config = KueueConfig(gates={**case.gates, **variant})
        cycle = Cycle(config, things, world.clock(fixtures["now"]))
        cycle.now += SECOND
        cycle.run()
        wanted = [world.decode_workload(document) for document in case.want["wantWorkloads"]]
        got = [_comparable(workload) for workload in cycle.workloads.values()]
        yield from compare("workloads", got, [_comparable(workload) for workload in wanted])
        want = [
            event.silent() for event in expected_events(case.want["wantEvents"], granular=config.has_granular_reasons)
        ]
        yield from compare("events", [event.silent() for event in cycle.events], want)


def _comparable(workload: Workload) -> Workload:
    timeless = tuple(replace(condition, since=0) for condition in workload.conditions)
    return world.comparable(replace(workload, conditions=timeless, labels={}))


CHECKS: dict[str, Check] = {
    "scheduler/TestScheduleForTASWhenWorkloadModifiedConcurrently": lambda table, case: list(
        check_eviction(table, case)
    ),
}
