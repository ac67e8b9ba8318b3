"""Actions that open a view, and those that control simulated time."""

from gpuconsole.ui.actions.action import Action, Scope


def _view(id: str, key: str, label: str, help: str, *aliases: str) -> Action:
    return Action(id=f"view.{id}", keys=(key,), label=label, help=help, scope=Scope.VIEWS, aliases=aliases)


VIEWS: tuple[Action, ...] = (
    _view(
        "dashboard",
        "1",
        "dash",
        "Cluster overview: GPUs, pending work, queues, problems.",
        "dash",
        "dashboard",
        "pulse",
    ),
    _view(
        "queues", "2", "queues", "Cohorts, ClusterQueues and LocalQueues as a tree.", "qu", "queues", "cq", "lq", "co"
    ),
    _view("workloads", "3", "workloads", "Workloads with their position in the queue.", "wl", "workloads", "workload"),
    _view("nodes", "4", "nodes", "Nodes and their GPUs: map, list, devices.", "no", "nodes", "node", "gpu"),
    _view("topology", "5", "topology", "Blocks, racks and hosts, and the gangs that fit.", "topo", "topology", "racks"),
    _view(
        "preemptions", "6", "preempt", "Preemption history: victim, preemptor, rule, lost work.", "pre", "preemptions"
    ),
    _view("whatif", "7", "what-if", "Try changes in a fork of this cluster.", "sim", "whatif", "what-if"),
    Action(
        id="view.submit",
        keys=("n", "8"),
        label="submit",
        help="Submit a job from a template.",
        scope=Scope.VIEWS,
        aliases=("new", "submit"),
        footer=True,
    ),
    _view("cost", "9", "cost", "Cost of node pools, queues, teams and workloads.", "cost", "pools"),
    Action(
        id="view.history",
        keys=("alt+0",),
        label="history",
        help="Event history, newest first.",
        scope=Scope.VIEWS,
        aliases=("hist", "history", "ev", "events"),
    ),
)

SIMULATION: tuple[Action, ...] = (
    Action(
        id="sim.pause",
        keys=(".",),
        label="pause",
        help="Pause or resume the simulation.",
        scope=Scope.SIMULATION,
        aliases=("pause", "resume", "run"),
        footer=True,
    ),
    Action(
        id="sim.step",
        keys=(";",),
        label="step",
        help="Advance the simulation to the next event.",
        scope=Scope.SIMULATION,
        aliases=("step",),
    ),
    Action(
        id="sim.faster",
        keys=(">",),
        label="faster",
        help="Run the simulation faster.",
        scope=Scope.SIMULATION,
    ),
    Action(
        id="sim.slower",
        keys=("<",),
        label="slower",
        help="Run the simulation slower.",
        scope=Scope.SIMULATION,
    ),
    Action(
        id="sim.speed",
        keys=("=",),
        label="speed",
        help="Set simulated seconds per real second (1 to 10,000).",
        scope=Scope.SIMULATION,
        aliases=("speed",),
        argument="[factor]",
    ),
)
