"""The Active condition of admission checks, set by Kueue; queues with inactive checks are inactive."""

from msgspec.structs import replace

from gpuconsole.model.autoscaling import ProvisioningRequestConfig
from gpuconsole.model.objects import TABLES
from gpuconsole.model.queues import AdmissionCheck
from gpuconsole.scheduling.kueue.provisioning.controller import activity
from gpuconsole.sim.world import World


def refresh_active_checks(world: World) -> None:
    """Set the Active condition of every ProvisioningRequest check: its config must exist.

    Checks of other controllers are not changed.
    """
    configs = world.state.table(TABLES[ProvisioningRequestConfig]).freeze()
    for check in list(world.state.table(TABLES[AdmissionCheck]).all()):
        found = activity(check, configs)
        if found is not None and found.status != check.active:
            world.put(replace(check, active=found.status))
