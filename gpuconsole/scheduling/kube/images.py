"""ImageLocality: prefers nodes that hold a pod's images, weighted by size and by the share of nodes that hold them."""

from collections import Counter
from collections.abc import Iterable, Sequence

from gpuconsole.model.cluster import Node, Pod

MEGABYTE = 1024 * 1024
LEAST = 23 * MEGABYTE
"""Total image size up to which a node scores 0 (minThreshold)."""
MOST = 1000 * MEGABYTE
"""Image size per container from which a node scores 100 (maxContainerThreshold)."""
from gpuconsole.scheduling.kube.scores import MAX_SCORE


class Images:
    """Number of nodes that hold each image, for scoring single nodes."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        listed = list(nodes)
        self._total = len(listed)
        self._holders = Counter(image for node in listed for image in node.images)

    @property
    def known(self) -> bool:
        """True if any node reports images."""
        return bool(self._holders)

    def score(self, pod: Pod, node: Node) -> int:
        """Score of the node, 0 to 100: the sizes of the pod's images on it, times the share of nodes that hold each."""
        containers = (*pod.template.containers, *pod.template.init_containers)
        return self.rate([container.image for container in containers], node)

    def rate(self, images: Sequence[str], node: Node) -> int:
        """The same score for a pod's images, one for each container."""
        held = (_normal(image) for image in images)
        total = sum(
            int(node.images[image] * (self._holders[image] / self._total)) for image in held if image in node.images
        )
        most = MOST * len(images)
        bounded = min(max(total, LEAST), most)
        return MAX_SCORE * (bounded - LEAST) // (most - LEAST) if most > LEAST else 0


def _normal(image: str) -> str:
    """An image's name with a tag, as nodes list it."""
    return image if image.rfind(":") > image.rfind("/") else f"{image}:latest"
