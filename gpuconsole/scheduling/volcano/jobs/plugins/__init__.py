"""Job plugins: their changes to pods of a Volcano Job, and the objects that they create for it (Volcano 1.15).

Volcano runs them in the random order of a Go map; here they run by name. `PLUGINS` lists them.
"""

from gpuconsole.scheduling.volcano.jobs.job_plugins import PLUGINS, UnknownPlugin, on_pod, resources_of

__all__ = ["PLUGINS", "UnknownPlugin", "on_pod", "resources_of"]
