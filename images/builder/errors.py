"""What may go wrong in a build, as sentences for the person who started it; `images/build.py` prints them."""

from __future__ import annotations


class BuildError(Exception):
    """An image cannot be built. The text says which, why, and what to do about it."""
