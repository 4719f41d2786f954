"""What may go wrong in a pod before its process runs, as sentences for whoever reads the pod's log."""

from __future__ import annotations

from odradek.base.errors import OdradekError


class PodError(OdradekError):
    """The pod cannot start. The text says what, where, and what to do; the command prints it and exits with 1."""
