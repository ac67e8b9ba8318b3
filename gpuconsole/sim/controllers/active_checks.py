"""Whether admission checks can work: Kueue's controllers say it of their own, and queues are inactive without them."""

from msgspec.structs import replace

from gpuconsole.model.objects import TABLES
from gpuconsole.model.provisioning import ProvisioningRequestConfig
from gpuconsole.model.queues import AdmissionCheck
from gpuconsole.scheduling.kueue.provisioning.references import activity
from gpuconsole.sim.world import World


def refresh(world: World) -> None:
    """Look at every check that asks for capacity: its config has to be there. Those of other controllers stay."""
    configs = world.state.table(TABLES[ProvisioningRequestConfig]).freeze()
    for check in list(world.state.table(TABLES[AdmissionCheck]).all()):
        found = activity(check, configs)
        if found is not None and found.status != check.active:
            world.put(replace(check, active=found.status))
