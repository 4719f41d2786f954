"""The pause image, built without an image builder: one layer with one program, in the format of `docker save`.

Writes an archive with a given program. containerd can import it.
"""

from __future__ import annotations

import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

_ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}


def _tar(files: Mapping[str, bytes], mode: int) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), mode
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def archive(program: bytes, image: str, architecture: str) -> bytes:
    """An image archive whose only file is the program. Equal inputs produce equal bytes."""
    layer = _tar({"pause": program}, 0o755)
    settings = {
        "architecture": architecture,
        "os": "linux",
        "config": {"Entrypoint": ["/pause"], "User": "65535:65535"},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [image], "Layers": ["layer.tar"]}]
    files = {
        "manifest.json": json.dumps(manifest).encode(),
        "config.json": json.dumps(settings).encode(),
        "layer.tar": layer,
    }
    return _tar(files, 0o644)


def write(program: Path, image: str, target: Path) -> None:
    """Write the archive for the processor architecture of this machine."""
    machine = platform.machine()
    target.write_bytes(archive(program.read_bytes(), image, _ARCHITECTURES.get(machine, machine)))
