"""Completes names of profiles in a shell. The options of all commands use it, so it imports none of them."""

from __future__ import annotations

import click

from odradek.base.errors import OdradekError
from odradek.cli.profiles.profile_store import profiles_path, read_profiles


def complete_profiles(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the profiles that begin with `incomplete`; none if their file cannot be read."""
    try:
        return sorted(name for name in read_profiles(profiles_path()).by_name if name.startswith(incomplete))
    except OdradekError:
        return []
