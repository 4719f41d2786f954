"""A `FileStore` on any file system of Hadoop, such as HDFS or S3, through the JVM of the Spark session.

File systems where files appear before they are complete, such as HDFS, get a temporary file that is then renamed. In
object stores, a file appears when it is closed, and a rename is a copy: there, files are written in place.
"""

from __future__ import annotations

import posixpath
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from pyspark_odradek.pipelines.file_store import FileStore, FileStoreError, LocalStore

OBJECT_STORES: Final = frozenset({"s3a", "s3", "s3n", "gs", "oss", "cosn", "obs", "wasb", "wasbs"})
"""Schemes whose files appear, complete, when they are closed. `abfs` has an atomic rename."""
CONDITIONAL: Final = "fs.option.create.conditional.overwrite"
"""The option of Hadoop 3.4.2 and later with which a store refuses a file that exists when it is closed."""

_EXISTS: Final = ("FileAlreadyExistsException", "RemoteFileChangedException")


def open_store(spark: SparkSession, location: str) -> FileStore:
    """Return the store of a path or URI. A path without a scheme is in Hadoop's default file system."""
    store = HadoopStore(spark, location)
    parts = urlsplit(store.location)
    return LocalStore(Path(unquote(parts.path))) if parts.scheme == "file" else store


class HadoopStore:
    """A folder of a file system of Hadoop. Methods raise `FileStoreError` for what the file system refuses."""

    def __init__(self, spark: SparkSession, location: str) -> None:
        """The folder is created by the first file. Raises `FileStoreError` if no file system has this scheme."""
        # Spark's public interface in Python has no file system; this attribute is the JVM of its gateway.
        jvm: Any = spark._jvm
        gateway: Any = spark.sparkContext._gateway
        self._hadoop = jvm.org.apache.hadoop.fs
        self._rename_options = gateway.new_array(jvm.org.apache.hadoop.fs.Options.Rename, 1)
        self._conf: Any = spark.sparkContext._jsc.hadoopConfiguration()
        with _Refusals(location):
            path = self._hadoop.Path(location)
            self._system = path.getFileSystem(self._conf)
            self._root = self._system.makeQualified(path)
        self._in_place = str(self._root.toUri().getScheme()) in OBJECT_STORES

    @property
    def location(self) -> str:
        """The folder as a URI."""
        return str(self._root.toString())

    def _path(self, path: str) -> Any:
        return self._hadoop.Path(self._root, path) if path else self._root

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder, in order; none if it does not exist."""
        try:
            with _Refusals(folder):
                return sorted(str(status.getPath().getName()) for status in self._system.listStatus(self._path(folder)))
        except FileNotFoundError:
            return []

    def files(self, folder: str) -> list[str]:
        """Return the paths of all files below a folder, in order; none if it does not exist."""
        found = []
        try:
            with _Refusals(folder):
                listed = self._system.listFiles(self._path(folder), True)
                while listed.hasNext():
                    found.append(self._relative(listed.next().getPath()))
        except FileNotFoundError:
            return []
        return sorted(found)

    def _relative(self, path: Any) -> str:
        return posixpath.relpath(str(path.toUri().getPath()), str(self._root.toUri().getPath()))

    def read(self, path: str) -> bytes:
        """Return the content of a file. Raises `FileNotFoundError`."""
        with _Refusals(path):
            stream = self._system.open(self._path(path))
            try:
                return bytes(stream.readAllBytes())
            finally:
                stream.close()

    def create(self, path: str, data: bytes) -> None:
        """Create a file with its folders. Raises `FileExistsError`, and leaves the file as it is, if it exists.

        A store without conditional writes checks before it writes: two callers at the same time may then both succeed.
        """
        target = self._path(path)
        with _Refusals(path):
            if self._system.exists(target):
                raise FileExistsError(path)
            if self._in_place:
                builder = self._system.createFile(target).recursive().overwrite(False)
                # `opt` is ignored by stores that do not know the option; `must` would fail there.
                self._write(builder.opt(CONDITIONAL, "true").build(), data)
                return
            temporary = self._temporary(path, data)
            if not self._system.rename(temporary, target):
                self._system.delete(temporary, False)
                raise FileExistsError(path)

    def replace(self, path: str, data: bytes) -> None:
        """Create a file with its folders, or replace its content."""
        target = self._path(path)
        with _Refusals(path):
            if self._in_place:
                self._write(self._system.create(target, True), data)
                return
            self._rename_options[0] = self._hadoop.Options.Rename.OVERWRITE
            context = self._hadoop.FileContext.getFileContext(self._root.toUri(), self._conf)
            context.rename(self._temporary(path, data), target, self._rename_options)

    def _temporary(self, path: str, data: bytes) -> Any:
        folder, name = posixpath.split(path)
        temporary = self._path(posixpath.join(folder, f".{name}.{uuid.uuid4().hex}"))
        self._write(self._system.create(temporary, False), data)
        return temporary

    def _write(self, stream: Any, data: bytes) -> None:
        try:
            stream.write(data)
            # On HDFS, without this, the data may be in the memory of data nodes only.
            if stream.hasCapability("hsync"):
                stream.hsync()
        finally:
            stream.close()

    def move(self, source: str, target: str) -> None:
        """Move a file to a path that does not exist. Raises `FileNotFoundError` if the file does not exist."""
        final = self._path(target)
        with _Refusals(source):
            if not self._system.exists(self._path(source)):
                raise FileNotFoundError(source)
            self._system.mkdirs(final.getParent())
            if not self._system.rename(self._path(source), final):
                raise FileStoreError(f"{self._path(source)} cannot be moved to {final}")

    def remove(self, path: str) -> None:
        """Remove a file, or a folder with its content, if it exists."""
        with _Refusals(path):
            self._system.delete(self._path(path), True)

    def persist(self, paths: Iterable[str]) -> None:
        """Do nothing: these file systems keep what was closed."""


class _Refusals:
    """Converts exceptions of the JVM in a `with` block."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> None:
        """Nothing to prepare."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: object) -> None:
        if not isinstance(error, Py4JJavaError):
            return
        name = str(error.java_exception.getClass().getSimpleName())
        # Messages of a remote file system contain its stack trace.
        message = str(error.java_exception.getMessage()).partition("\n")[0]
        if name == "FileNotFoundException":
            raise FileNotFoundError(message) from None
        if name in _EXISTS:
            raise FileExistsError(message) from None
        raise FileStoreError(f"{self._path}: {name}: {message}") from None
