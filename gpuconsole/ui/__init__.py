"""The terminal console: screens draw Snapshots and turn keys into Commands."""

import os

# How often Textual looks for something to paint; it reads this when it is imported. With its 60 a second a key waits up
# to 17 ms for its frame, and opening the filter takes two frames. It paints no more often for that: only on a change.
os.environ.setdefault("TEXTUAL_FPS", "120")
