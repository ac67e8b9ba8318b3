"""Descriptions of objects: the text shown by `d`."""

from gpuconsole.ui.describing.events import about as about
from gpuconsole.ui.describing.events import events as events
from gpuconsole.ui.describing.objects import describe as describe
