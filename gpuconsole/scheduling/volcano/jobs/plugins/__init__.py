"""Job plugins: what they add to the pods of a Volcano Job, and which objects they make beside it (Volcano 1.15).

Volcano runs them in the random order of a Go map; here they run by name. `registry` names them all.
"""

from gpuconsole.scheduling.volcano.jobs.plugins.registry import PLUGINS, UnknownPlugin, on_pod, resources_of

__all__ = ["PLUGINS", "UnknownPlugin", "on_pod", "resources_of"]
