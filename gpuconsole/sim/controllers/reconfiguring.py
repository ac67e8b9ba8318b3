"""Changes of Kueue's or the scheduler's configuration: it restarts, and keeps only what the cluster's objects show."""

from msgspec.structs import replace

from gpuconsole.model.commands import Reconfigure
from gpuconsole.scheduling.kueue import gates
from gpuconsole.scheduling.kueue.config import KueueConfig
from gpuconsole.sim.controllers.refusals import DONE, Refusal
from gpuconsole.sim.policy import SimPolicy
from gpuconsole.sim.scenario_form import PlacementForm
from gpuconsole.sim.scenario_kueue import kueue_config
from gpuconsole.sim.scenario_placement import placement_of
from gpuconsole.sim.strict_decode import convert
from gpuconsole.sim.world import World


def reconfigure(world: World, command: Reconfigure) -> Refusal:
    """Restart the schedulers with other settings; a command that changes none of them does nothing."""
    problems: list[str] = []
    policy = _policy(world.policy, command, problems)
    if problems:
        return "; ".join(problems)
    if policy != world.policy:
        world.restart(policy)
    return DONE


def _policy(old: SimPolicy, command: Reconfigure, problems: list[str]) -> SimPolicy:
    policy = old
    if command.kueue_config or command.feature_gates or command.fair_sharing is not None:
        if old.kueue is None:
            problems.append("there is no Kueue to configure")
            return old
        policy = replace(policy, kueue=_kueue(old.kueue, command, problems))
    if command.placement:
        form = convert(dict(command.placement), PlacementForm, "placement", problems)
        if form is not None:
            policy = replace(policy, placement=placement_of(form, None, problems))
    return policy


def _kueue(config: KueueConfig, command: Reconfigure, problems: list[str]) -> KueueConfig:
    if command.kueue_config:
        config = kueue_config(dict(command.kueue_config), None, problems)
    if command.fair_sharing is not None:
        config = replace(config, fair_sharing=command.fair_sharing)
    wrong = dict(gates.refusals(command.feature_gates))
    problems.extend(f"feature gate {gate}: {why}; {gates.remedy(gate)}" for gate, why in wrong.items())
    if wrong or not command.feature_gates:
        return config
    chosen = gates.resolve({**config.gates, **command.feature_gates})
    problems.extend(f"feature gates: {why}" for _, why in gates.contradictions(chosen))
    return replace(config, gates=chosen)
