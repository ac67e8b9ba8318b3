"""The screens, and the time of the simulation."""

from gpuconsole.ui.actions.action import Action, Scope


def _view(id: str, key: str, label: str, help: str, *aliases: str) -> Action:
    return Action(id=f"view.{id}", keys=(key,), label=label, help=help, scope=Scope.VIEWS, aliases=aliases)


VIEWS: tuple[Action, ...] = (
    _view("dashboard", "1", "dash", "The cluster at a glance.", "dash", "dashboard", "pulse"),
    _view(
        "queues", "2", "queues", "Cohorts, ClusterQueues and LocalQueues as a tree.", "qu", "queues", "cq", "lq", "co"
    ),
    _view("workloads", "3", "workloads", "Workloads with their place in the queue.", "wl", "workloads", "workload"),
    _view("nodes", "4", "nodes", "Nodes with a map of their GPUs.", "no", "nodes", "node", "gpu"),
    _view(
        "topology", "5", "topology", "Blocks, racks and hosts, and what would fit where.", "topo", "topology", "racks"
    ),
    _view("preemptions", "6", "preempt", "Who evicted whom, and why.", "pre", "preemptions"),
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
    _view("cost", "9", "cost", "Node pools, what they cost, and who causes it.", "cost", "pools"),
    Action(
        id="view.history",
        keys=("alt+0",),
        label="history",
        help="What happened, line by line.",
        scope=Scope.VIEWS,
        aliases=("hist", "history", "ev", "events"),
    ),
)

SIMULATION: tuple[Action, ...] = (
    Action(
        id="sim.pause",
        keys=(".",),
        label="pause",
        help="Pause the simulation, or let it run on.",
        scope=Scope.SIMULATION,
        aliases=("pause", "resume", "run"),
        footer=True,
    ),
    Action(
        id="sim.step",
        keys=(";",),
        label="step",
        help="Run the next single moment at which something happens.",
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
        help="Set how many simulated seconds pass in a second (1 to 10,000).",
        scope=Scope.SIMULATION,
        aliases=("speed",),
        argument="[factor]",
    ),
)
