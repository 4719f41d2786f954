"""Reads manifest files, and reads them again when they change.

Used by `embedded/watcher` and at the start. A changed file is read only when it has not changed since the last check,
so that a file that is being saved is not read half written.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from odradek_operator.crds import Cluster, Resources, read_resources
from odradek_operator.crds.documents import parse_documents
from odradek_operator.embedded.child import system_error
from odradek_operator.errors import EmbeddedError

_SUFFIXES: Final = (".yaml", ".yml")
MAX_BYTES: Final = 10 << 20
"""Maximum size of a manifest; Kubernetes accepts about 1 MiB."""

_Content = tuple[tuple[str, str], ...]


class Manifests:
    """A set of manifest files and folders."""

    def __init__(self, paths: Sequence[Path]) -> None:
        """Of a folder, all `*.yaml` and `*.yml` files are read, without subfolders."""
        self._paths = tuple(paths)
        self._taken: _Content = ()
        self._seen: _Content = ()

    def load(self) -> Resources:
        """Read all files. Raises `EmbeddedError`, `DocumentError` or `ResourceError`."""
        self._taken = self._seen = self._content()
        return _resources(self._taken)

    def reload(self) -> Resources | None:
        """Return the resources if the files have changed, but not since the last check; else None. Raises as `load`.

        Invalid files are not read again until they change.
        """
        content = self._content()
        still, self._seen = content == self._seen, content
        if content == self._taken or not still:
            return None
        self._taken = content
        return _resources(content)

    def _content(self) -> _Content:
        return tuple((str(path), _read(path)) for path in self._files())

    def _files(self) -> list[Path]:
        files: list[Path] = []
        for path in self._paths:
            if path.is_dir():
                found = sorted(entry for entry in path.iterdir() if entry.suffix in _SUFFIXES and entry.is_file())
                if not found:
                    raise EmbeddedError(f"The folder {path} holds no .yaml or .yml file: name another with -f.")
                files += found
            elif path.exists():
                files.append(path)
            else:
                raise EmbeddedError(f"There is no file or folder {path}: name one with -f.")
        return list(dict.fromkeys(files))


def _read(path: Path) -> str:
    try:
        if path.stat().st_size > MAX_BYTES:
            raise EmbeddedError(f"{path} is larger than {MAX_BYTES >> 20} MiB, which is more than a manifest may have.")
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise EmbeddedError(system_error(f"{path} cannot be read", error)) from error
    except UnicodeDecodeError as error:
        raise EmbeddedError(f"{path} is not UTF-8 text: byte {error.start} is invalid.") from error


def _resources(content: _Content) -> Resources:
    return read_resources(document for path, text in content for document in parse_documents(text, path))


def only_cluster(resources: Resources) -> Cluster:
    """Return the only Cluster. Raises `EmbeddedError` if there is none or more than one."""
    if len(resources.clusters) != 1:
        named = ", ".join(sorted(resources.clusters)) or "none"
        raise EmbeddedError(f"Exactly one Cluster resource is needed, found {named}: see -f.")
    return next(iter(resources.clusters.values()))
