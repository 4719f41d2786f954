"""The login of a User: reads its Secret, and writes the files of it."""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping
from pathlib import Path

from odradek_operator.kube.api.api_client import KubernetesClient
from odradek_operator.kube.api.object_kinds import Kind
from odradek_operator.plugin.restart_requests import PluginError

FILE_MODE = 0o600
FOLDER_MODE = 0o700


async def read_login(client: KubernetesClient, namespace: str, name: str) -> dict[str, bytes]:
    """Return the files of a User's Secret. Raises `PluginError` if there is none, and `KubernetesError`."""
    user = await client.get(Kind.USER, namespace, name)
    if user is None:
        raise PluginError(f"There is no User {name} in namespace {namespace}.")
    if (user.get("spec") or {}).get("authentication") is None:
        raise PluginError(f"User {name} has no authentication in its specification, so the operator makes no login.")
    secret = (user.get("status") or {}).get("secret")
    body = None if secret is None else await client.get(Kind.SECRET, namespace, secret)
    if body is None:
        raise PluginError(
            f"User {name} has no Secret: `kubectl odradek status` shows why. A user with authentication serviceaccount "
            "never has one."
        )
    return {key: base64.b64decode(content) for key, content in (body.get("data") or {}).items()}


def write_login(folder: Path, files: Mapping[str, bytes], *, overwrite: bool) -> list[Path]:
    """Write files that only their owner can read, and return their paths.

    Raises `PluginError` if one of them exists, unless `overwrite`, or cannot be written.
    """
    paths = [folder / name for name in sorted(files)]
    existing = [path for path in paths if path.exists()]
    if existing and not overwrite:
        raise PluginError(f"{existing[0]} already exists: use --overwrite, or another directory.")
    try:
        folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        for path in paths:
            # The old file may have another mode.
            path.unlink(missing_ok=True)
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE)
            with os.fdopen(descriptor, "wb") as file:
                file.write(files[path.name])
    except OSError as error:
        raise PluginError(f"{error.filename or folder} cannot be written: {error.strerror}.") from error
    return paths
