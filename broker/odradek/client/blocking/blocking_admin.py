"""`Admin` for threads. In, out and errors are those of `admin`; made by `BlockingClient.admin`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from odradek.base.types import TopicPartition
from odradek.client.admin import Admin
from odradek.client.blocking.loop_thread import LoopThread
from odradek.client.models import (
    ClusterDescription,
    ConfigChange,
    ConfigEntry,
    ConfigResource,
    GroupDescription,
    GroupListing,
    ListedOffset,
    LogDirDescription,
    NewTopic,
    OffsetAndMetadata,
    TopicDescription,
)


class BlockingAdmin:
    """Admin calls from any thread, over the connections of a `BlockingClient`."""

    def __init__(self, loop: LoopThread, admin: Admin) -> None:
        """`admin` is started."""
        self._loop: Final = loop
        self._admin: Final = admin

    def create_topics(self, topics: Iterable[NewTopic], *, validate_only: bool = False) -> None:
        """As `Admin.create_topics`."""
        self._loop.run(self._admin.create_topics(topics, validate_only=validate_only))

    def delete_topics(self, names: Iterable[str]) -> None:
        """As `Admin.delete_topics`."""
        self._loop.run(self._admin.delete_topics(names))

    def create_partitions(self, counts: Mapping[str, int], *, validate_only: bool = False) -> None:
        """As `Admin.create_partitions`."""
        self._loop.run(self._admin.create_partitions(counts, validate_only=validate_only))

    def list_topics(self, *, internal: bool = False) -> list[str]:
        """As `Admin.list_topics`."""
        return self._loop.run(self._admin.list_topics(internal=internal))

    def describe_topics(self, names: Iterable[str]) -> dict[str, TopicDescription]:
        """As `Admin.describe_topics`."""
        return self._loop.run(self._admin.describe_topics(names))

    def describe_cluster(self) -> ClusterDescription:
        """As `Admin.describe_cluster`."""
        return self._loop.run(self._admin.describe_cluster())

    def describe_log_dirs(self, broker_ids: Iterable[int] | None = None) -> dict[int, list[LogDirDescription]]:
        """As `Admin.describe_log_dirs`."""
        return self._loop.run(self._admin.describe_log_dirs(broker_ids))

    def describe_configs(
        self, resources: Iterable[ConfigResource], *, keys: Iterable[str] | None = None
    ) -> dict[ConfigResource, dict[str, ConfigEntry]]:
        """As `Admin.describe_configs`."""
        return self._loop.run(self._admin.describe_configs(resources, keys=keys))

    def incremental_alter_configs(
        self, changes: Mapping[ConfigResource, Sequence[ConfigChange]], *, validate_only: bool = False
    ) -> None:
        """As `Admin.incremental_alter_configs`."""
        self._loop.run(self._admin.incremental_alter_configs(changes, validate_only=validate_only))

    def list_groups(self) -> list[GroupListing]:
        """As `Admin.list_groups`."""
        return self._loop.run(self._admin.list_groups())

    def describe_groups(self, group_ids: Iterable[str]) -> dict[str, GroupDescription]:
        """As `Admin.describe_groups`."""
        return self._loop.run(self._admin.describe_groups(group_ids))

    def delete_groups(self, group_ids: Iterable[str]) -> None:
        """As `Admin.delete_groups`."""
        self._loop.run(self._admin.delete_groups(group_ids))

    def group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """As `Admin.group_offsets`."""
        return self._loop.run(self._admin.group_offsets(group_id, partitions))

    def list_offsets(
        self, wanted: Mapping[TopicPartition, int | str], *, read_committed: bool = False
    ) -> dict[TopicPartition, ListedOffset]:
        """As `Admin.list_offsets`."""
        return self._loop.run(self._admin.list_offsets(wanted, read_committed=read_committed))
