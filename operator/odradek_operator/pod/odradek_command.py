"""Replaces the process of a pod with `odradek`, so that it gets the signals of the kubelet."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from odradek_operator.errors import PodError


def become_odradek(arguments: Sequence[str], environment: Mapping[str, str]) -> NoReturn:
    """Execute `odradek` with arguments. Raises `PodError` if it cannot be executed."""
    command = str(Path(sys.executable).with_name("odradek"))
    try:
        os.execve(command, [command, *arguments], dict(environment))
    except OSError as error:
        raise PodError(f"{command} cannot be executed: {error.strerror}.") from error
