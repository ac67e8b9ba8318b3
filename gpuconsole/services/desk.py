"""What the desk of a live cluster tells, for screens, which know no backend."""

from gpuconsole.backends.desk import Access as Access
from gpuconsole.backends.desk import Desk as Desk
from gpuconsole.backends.desk import LogLine as LogLine
from gpuconsole.backends.desk import Logs as Logs
from gpuconsole.backends.desk import Manifest as Manifest
from gpuconsole.backends.desk import Reach as Reach
from gpuconsole.backends.desk import Said as Said
