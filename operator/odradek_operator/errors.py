"""Errors of local processes and pods; commands print their text without a stack trace and exit with 1."""

from __future__ import annotations

from odradek.base.errors import OdradekError


class EmbeddedError(OdradekError):
    """The embedded cluster, or one of its processes, cannot start or continue. The text says what, where and what to
    do."""


class PodError(OdradekError):
    """The process of a pod cannot start. The text says what, where and what to do."""
