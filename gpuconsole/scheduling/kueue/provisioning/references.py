"""Finds the ProvisioningRequestConfig of an admission check (Kueue 0.19 pkg/util/admissioncheck)."""

from collections.abc import Mapping

from gpuconsole.model.autoscaling import ProvisioningRequestConfig
from gpuconsole.model.queues import AdmissionCheck
from gpuconsole.model.workloads import Condition

CONTROLLER = "kueue.x-k8s.io/provisioning-request"
_GROUP, _KIND = "kueue.x-k8s.io", "ProvisioningRequestConfig"


def config_of(check: AdmissionCheck) -> str:
    """Name of the config that a check refers to; empty for an invalid reference or another controller's check."""
    return check.parameters.rpartition("/")[2] if check.controller == CONTROLLER and not _fault(check) else ""


def activity(check: AdmissionCheck, configs: Mapping[str, ProvisioningRequestConfig]) -> Condition | None:
    """Return the Active condition that this controller sets on a check; None for checks of other controllers."""
    if check.controller != CONTROLLER:
        return None
    fault = _fault(check)
    name = config_of(check)
    if not fault and name not in configs:
        fault = f'provisioningrequestconfigs.{_GROUP} "{name}" not found'
    if fault:
        return Condition("Active", False, "BadParametersRef", fault)
    return Condition("Active", True, "Active", "The admission check is active")


def _fault(check: AdmissionCheck) -> str:
    group, _, rest = check.parameters.partition("/")
    kind, _, name = rest.partition("/")
    if not check.parameters:
        return "missing parameters reference"
    if not name:
        return "empty name: bad parameters reference"
    if group != _GROUP:
        return f'wrong group "{group}", expecting "{_GROUP}": bad parameters reference'
    if kind != _KIND:
        return f'wrong kind "{kind}", expecting "{_KIND}": bad parameters reference'
    return ""
