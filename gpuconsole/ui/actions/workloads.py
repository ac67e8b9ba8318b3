"""What can be done with workloads and their queues."""

from gpuconsole.ui.actions.action import Action, Scope

WORKLOADS: tuple[Action, ...] = (
    Action(
        id="workload.stop",
        keys=("s",),
        label="stop or resume",
        help="Stop the workload (spec.active: false), or let it go on.",
        scope=Scope.WORKLOAD,
        changes=True,
        dangerous=True,
    ),
    Action(
        id="workload.resume",
        keys=("m r",),
        label="resume",
        help="Let a stopped workload queue again.",
        scope=Scope.WORKLOAD,
        changes=True,
    ),
    Action(
        id="workload.requeue",
        keys=("t",),
        label="requeue",
        help="Evict the workload and put it back in its queue.",
        scope=Scope.WORKLOAD,
        changes=True,
        dangerous=True,
    ),
    Action(
        id="workload.priority",
        keys=("m p",),
        label="priority",
        help="Change its priority.",
        scope=Scope.WORKLOAD,
        changes=True,
    ),
    Action(
        id="workload.move",
        keys=("m q",),
        label="move to queue",
        help="Move it to another LocalQueue of its namespace.",
        scope=Scope.WORKLOAD,
        changes=True,
    ),
    Action(
        id="workload.duplicate",
        keys=("D",),
        label="duplicate",
        help="Open the submit form with a copy of it.",
        scope=Scope.WORKLOAD,
    ),
)

QUEUES: tuple[Action, ...] = (
    Action(
        id="queue.fold",
        keys=("left", "h"),
        label="fold",
        help="Fold what is below, or move to the parent.",
        scope=Scope.QUEUE,
        footer=True,
    ),
    Action(
        id="queue.unfold",
        keys=("right", "l"),
        label="unfold",
        help="Unfold what is below: queues, then flavors.",
        scope=Scope.QUEUE,
        footer=True,
    ),
    Action(
        id="queue.hold",
        keys=("s",),
        label="hold or resume",
        help="Hold the queue (it admits nothing new), or resume it.",
        scope=Scope.QUEUE,
        changes=True,
    ),
    Action(
        id="queue.drain",
        keys=("m d",),
        label="hold and drain",
        help="Hold the queue and evict what it runs.",
        scope=Scope.QUEUE,
        changes=True,
        dangerous=True,
    ),
    Action(
        id="queue.resume",
        keys=("m r",),
        label="resume",
        help="Let the queue admit again.",
        scope=Scope.QUEUE,
        changes=True,
    ),
    Action(
        id="queue.quota",
        keys=("e",),
        label="edit quota",
        help="Change nominal quota, borrowing limit or lending limit of one flavor.",
        scope=Scope.QUEUE,
        changes=True,
    ),
    Action(
        id="queue.resource",
        keys=("R",),
        label="resource",
        help="Choose the resource that the bars show.",
        scope=Scope.QUEUE,
    ),
)
