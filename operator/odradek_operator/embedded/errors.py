"""What may go wrong around local processes, as sentences for the person who started them.

Raised by the modules of `embedded`; the command prints the text alone, without a stack trace, and exits with 1.
"""

from __future__ import annotations

from odradek.base.errors import OdradekError


class EmbeddedError(OdradekError):
    """The embedded cluster cannot start or go on. The text says what, where, and what to do about it."""
