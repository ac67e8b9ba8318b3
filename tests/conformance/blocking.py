"""scheduler/TestSecondPassSkipsWaitForPodsReadyBlock: blocked admission does not hold up whoever has quota already."""

from collections.abc import Iterator

from gpuconsole.model.clock import SECOND
from gpuconsole.scheduling.kueue.config import KueueConfig, WaitForPodsReady
from tests.conformance import world
from tests.conformance.cycle import Cycle
from tests.conformance.tables import Case, Check, Table, compare


def check_second_pass(table: Table, case: Case) -> Iterator[str]:
    """A workload that has quota, and is not ready, gets its place in the topology, and loses nothing by it."""
    fixtures = table.fixtures
    documents = [fixtures[name] for name in ("ns", "topology", "rf", "provCheck", "cq", "lq")]
    before = world.decode_workload(case.input["workload"])
    things = [*world.decode_all([*documents, *fixtures["nodes"]]), before]
    config = KueueConfig(wait_for_pods_ready=WaitForPodsReady(block_admission=True), gates=case.gates)
    cycle = Cycle(config, things, world.clock(fixtures["now"]))
    cycle.now += SECOND
    cycle.run()
    after = cycle.workloads[before.key]
    yield from compare("reserved", after.reserved, True)
    yield from compare("admitted", after.admitted, True)
    assert before.admission is not None
    for old, new in zip(before.admission.pod_sets, after.admission.pod_sets if after.admission else (), strict=True):
        hosts = {value for domain in new.topology for value in domain.values}
        yield from compare("has a place", bool(hosts), True)
        yield from compare("places on failed nodes", hosts & set(before.unhealthy_nodes), set())
        yield from compare("delayed", new.delayed, "Ready" if old.delayed else "")
    yield from compare("refused", sorted(cycle.refused), [])


CHECKS: dict[str, Check] = {
    "scheduler/TestSecondPassSkipsWaitForPodsReadyBlock": lambda table, case: list(check_second_pass(table, case)),
}
