"""NodeName: a pod that names its node goes nowhere else; one that waits for a scheduler names none."""

from gpuconsole.scheduling.kube.profile import Profile
from gpuconsole.scheduling.kube.shapes import Shape


def node_filter(rules: Profile, shape: Shape) -> None:
    """Never looked at: whoever names a node is bound to it already."""
