"""How laws are tried: locally with new examples each time, in CI with the same ones, so that it never hangs on luck."""

import os

from hypothesis import settings

settings.register_profile("local", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")
