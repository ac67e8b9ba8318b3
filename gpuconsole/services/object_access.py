"""Types of live object access for screens, which must not import backends."""

from gpuconsole.backends.object_access import KubeEvent as KubeEvent
from gpuconsole.backends.object_access import LogLine as LogLine
from gpuconsole.backends.object_access import Logs as Logs
from gpuconsole.backends.object_access import Manifest as Manifest
from gpuconsole.backends.object_access import ObjectAccess as ObjectAccess
from gpuconsole.backends.object_access import PodAccess as PodAccess
from gpuconsole.backends.object_access import PodOperation as PodOperation
