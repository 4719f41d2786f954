"""The error of a failed build, whose message `images/build.py` prints."""

from __future__ import annotations


class BuildError(Exception):
    """An image cannot be built. The message says which image, why, and what to do."""
