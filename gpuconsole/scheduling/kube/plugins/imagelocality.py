"""ImageLocality: nodes that hold the pod's images already."""

from gpuconsole.scheduling.kube.images import Images
from gpuconsole.scheduling.kube.plugins.roles import BooksScore
from gpuconsole.scheduling.kube.profile import Profile
from gpuconsole.scheduling.kube.shapes import Shape


def score(rules: Profile, shape: Shape, images: Images) -> BooksScore | None:
    """None as long as no node says what images it holds: all would score 0."""
    if not shape.images or not images.known:
        return None
    return lambda state: 0 if state.node is None else images.rate(shape.images, state.node)
