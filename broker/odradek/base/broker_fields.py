"""The settings of a broker that have an effect, with Kafka's names where Kafka has the setting.

`base/config` reads them from a properties file and from ZooKeeper; only it creates a `BrokerFields`. Names, types,
defaults and bounds follow https://kafka.apache.org/39/documentation/#brokerconfigs. Settings that Kafka has and this
broker does not use are in `base/settings_catalogue`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from odradek.base.settings import (
    INT32_MAX,
    INT64_MAX,
    Update,
    boolean,
    choice,
    integer,
    long,
    parts,
    real,
    secret,
    short,
    text,
    words,
)

HOUR_MS: Final = 3_600_000
MEBIBYTE: Final = 1 << 20
CODEC_NAMES: Final = ("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd")


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerFields:
    """The settings of one broker. Each attribute is the property of the same name with dots."""

    # Identity and places
    broker_id: int = integer(-1, "Id of this broker in the cluster; must be unique.", low=-1)
    broker_rack: str | None = text(None, "Rack or zone of this broker; replicas are spread over racks.")
    log_dir: str = text("/tmp/kafka-logs", "Directories of the logs where log.dirs is not given.")
    log_dirs: tuple[str, ...] = parts(("/tmp/kafka-logs",), "Directories of the logs, one for each disk.")
    listeners: tuple[str, ...] = parts(
        ("PLAINTEXT://:9092",), "What to listen on: NAME://host:port, ...", dynamic=Update.PER_BROKER
    )
    advertised_listeners: tuple[str, ...] = parts(
        (), "What clients are told to connect to; default: listeners.", dynamic=Update.PER_BROKER
    )
    listener_security_protocol_map: tuple[str, ...] = parts(
        ("PLAINTEXT:PLAINTEXT",),
        "Security protocol of each listener name: NAME:PROTOCOL, ...",
        dynamic=Update.PER_BROKER,
    )
    inter_broker_listener_name: str | None = text(None, "Listener that brokers use among themselves; default: first.")
    inter_broker_request_listeners: tuple[str, ...] = words((), "Other listeners that take requests between brokers.")
    control_plane_listener_name: str | None = text(
        None, "Not used here: the controller uses the inter-broker listener."
    )

    # ZooKeeper
    zookeeper_connect: str = text("", "Ensemble as host:port,host:port/chroot.")
    zookeeper_session_timeout_ms: int = integer(18_000, "Silence after which ZooKeeper ends the session.", low=1)
    zookeeper_connection_timeout_ms: int | None = integer(
        None, "Longest wait for the first connection; default: the session time-out.", low=1
    )
    zookeeper_max_in_flight_requests: int = integer(10, "Asynchronous requests in flight to ZooKeeper.", low=1)
    initial_broker_registration_timeout_ms: int = integer(60_000, "Longest wait for a broker id in use.", low=0)
    zookeeper_jute_maxbuffer: int = integer(0xFFFFF, "Largest write; at most jute.maxbuffer of the servers.", low=1024)
    zookeeper_set_acl: bool = boolean(False, "Make znodes that only the brokers' identity may change.")
    zookeeper_sasl_client: bool = boolean(True, "Authenticate by zookeeper.sasl.jaas.config where that is set.")
    zookeeper_sasl_jaas_config: str | None = secret(
        "JAAS entry of ZooKeeper's DigestLoginModule: user and password for SASL DIGEST-MD5."
    )
    zookeeper_auth_digest: str | None = secret("user:password of ZooKeeper's own digest scheme, without SASL.")
    zookeeper_ssl_client_enable: bool = boolean(False, "Connect to ZooKeeper by TLS.")
    zookeeper_clientCnxnSocket: str | None = text(  # noqa: N815 - the property's own spelling
        None, "org.apache.zookeeper.ClientCnxnSocketNetty, which TLS asks for; no other meaning here."
    )
    zookeeper_ssl_keystore_location: str | None = text(None, "PEM file of our private key and certificates.")
    zookeeper_ssl_keystore_password: str | None = secret("Password of the private key.")
    zookeeper_ssl_keystore_type: str | None = text(None, "PEM; default: by the file's suffix.")
    zookeeper_ssl_truststore_location: str | None = text(
        None, "PEM file of the certificates that are trusted; default: the system's."
    )
    zookeeper_ssl_truststore_password: str | None = secret("Not needed: PEM has none.")
    zookeeper_ssl_truststore_type: str | None = text(None, "PEM; default: by the file's suffix.")
    zookeeper_ssl_protocol: str = text("TLSv1.2", "Protocol, where zookeeper.ssl.enabled.protocols names none.")
    zookeeper_ssl_enabled_protocols: tuple[str, ...] = words((), "Protocols: TLSv1.2, TLSv1.3.")
    zookeeper_ssl_cipher_suites: tuple[str, ...] = words((), "Cipher suites of TLSv1.2, by their names in Java.")
    zookeeper_ssl_endpoint_identification_algorithm: str = text(
        "HTTPS", "HTTPS: the server's certificate must carry the host's name of zookeeper.connect; empty: any name."
    )
    zookeeper_ssl_crl_enable: bool = boolean(False, "Refuse certificates on revocation lists, kept in the truststore.")
    zookeeper_ssl_ocsp_enable: bool = boolean(False, "Not supported.")

    # Network
    socket_request_max_bytes: int = integer(100 * MEBIBYTE, "Largest request; larger ones are refused unread.", low=1)
    socket_send_buffer_bytes: int = integer(100 * 1024, "SO_SNDBUF; -1 leaves it to the system.", low=-1)
    socket_receive_buffer_bytes: int = integer(100 * 1024, "SO_RCVBUF; -1 leaves it to the system.", low=-1)
    socket_listen_backlog_size: int = integer(50, "Connections that wait to be accepted.", low=1)
    max_connections: int = integer(INT32_MAX, "Open connections on all listeners.", dynamic=Update.CLUSTER_WIDE)
    max_connections_per_ip: int = integer(INT32_MAX, "Open connections from one address.", dynamic=Update.CLUSTER_WIDE)
    connections_max_idle_ms: int = long(600_000, "Idle connections are closed after this time.")
    max_in_flight_requests_per_connection: int = integer(
        64, "Produce requests of one connection under way at once; reading stops at it.", low=1
    )
    request_timeout_ms: int = integer(30_000, "Longest wait for another broker's answer.", low=1)

    # Log
    log_segment_bytes: int = integer(1 << 30, "Size at which a segment rolls.", low=14, dynamic=Update.CLUSTER_WIDE)
    log_roll_ms: int | None = long(
        None, "Age at which a segment rolls; default: log.roll.hours.", low=1, dynamic=Update.CLUSTER_WIDE
    )
    log_roll_hours: int = integer(168, "Age at which a segment rolls.", low=1)
    log_roll_jitter_ms: int | None = long(
        None, "Random lessening of that age; default: log.roll.jitter.hours.", dynamic=Update.CLUSTER_WIDE
    )
    log_roll_jitter_hours: int = integer(0, "Random lessening of that age.")
    log_retention_ms: int | None = long(
        None,
        "Age at which segments go, -1 = never; default: log.retention.minutes.",
        low=-1,
        dynamic=Update.CLUSTER_WIDE,
    )
    log_retention_minutes: int | None = integer(None, "Age at which segments go; default: log.retention.hours.", low=-1)
    log_retention_hours: int = integer(168, "Age at which segments go.", low=-1)
    log_retention_bytes: int = long(
        -1, "Size above which the oldest segments go; -1 = no limit.", low=-1, dynamic=Update.CLUSTER_WIDE
    )
    log_retention_check_interval_ms: int = long(300_000, "How often retention is applied.", low=1)
    log_cleanup_policy: tuple[str, ...] = words(
        ("delete",), "What happens to old segments.", choices=("compact", "delete"), dynamic=Update.CLUSTER_WIDE
    )
    log_cleaner_delete_retention_ms: int = long(24 * HOUR_MS, "How long tombstones stay.", dynamic=Update.CLUSTER_WIDE)
    log_cleaner_min_cleanable_ratio: float = real(
        0.5, "Dirty share at which a log is compacted.", high=1.0, dynamic=Update.CLUSTER_WIDE
    )
    log_cleaner_min_compaction_lag_ms: int = long(
        0, "Shortest time a record stays uncompacted.", dynamic=Update.CLUSTER_WIDE
    )
    log_cleaner_max_compaction_lag_ms: int = long(
        INT64_MAX, "Longest time a record stays uncompacted.", low=1, dynamic=Update.CLUSTER_WIDE
    )
    log_cleaner_enable: bool = boolean(True, "Compact the topics whose cleanup.policy says so.")
    log_cleaner_threads: int = integer(1, "Processes that compact.", dynamic=Update.CLUSTER_WIDE)
    log_cleaner_io_max_bytes_per_second: float = real(
        1.7976931348623157e308, "Bytes that compaction reads and writes in a second.", dynamic=Update.CLUSTER_WIDE
    )
    log_cleaner_dedupe_buffer_size: int = long(
        128 * MEBIBYTE,
        "Memory of all compaction processes for the offsets of keys.",
        low=1024,
        dynamic=Update.CLUSTER_WIDE,
    )
    log_cleaner_io_buffer_size: int = integer(
        512 * 1024, "Bytes that compaction reads at once.", dynamic=Update.CLUSTER_WIDE
    )
    log_cleaner_io_buffer_load_factor: float = real(
        0.9, "Share of the memory for keys that may be filled.", high=1.0, dynamic=Update.CLUSTER_WIDE
    )
    log_cleaner_backoff_ms: int = long(15_000, "Rest when there is nothing to compact.", dynamic=Update.CLUSTER_WIDE)
    log_index_size_max_bytes: int = integer(
        10 * MEBIBYTE, "Largest index of a segment.", low=4, dynamic=Update.CLUSTER_WIDE
    )
    log_index_interval_bytes: int = integer(
        4096, "Bytes of log between two index entries.", dynamic=Update.CLUSTER_WIDE
    )
    log_flush_interval_messages: int = long(
        INT64_MAX, "Records after which a log is flushed.", low=1, dynamic=Update.CLUSTER_WIDE
    )
    log_flush_interval_ms: int | None = long(
        None,
        "Time after which a log is flushed; default: log.flush.scheduler.interval.ms.",
        dynamic=Update.CLUSTER_WIDE,
    )
    log_flush_scheduler_interval_ms: int = long(INT64_MAX, "How often logs are checked for flushing.")
    log_flush_offset_checkpoint_interval_ms: int = integer(60_000, "How often recovery points are written.")
    log_flush_start_offset_checkpoint_interval_ms: int = integer(60_000, "How often log start offsets are written.")
    log_preallocate: bool = boolean(False, "Give new segments their full size at once.", dynamic=Update.CLUSTER_WIDE)
    log_segment_delete_delay_ms: int = long(
        60_000, "Time from a file's .deleted name to its removal.", dynamic=Update.CLUSTER_WIDE
    )
    log_dir_min_free_bytes: int = long(
        1 << 30,
        "Free space of a log directory below which writes are refused; at most a twentieth of its disk. 0 = off.",
        dynamic=Update.CLUSTER_WIDE,
    )
    log_dir_free_check_interval_ms: int = long(
        3000, "How often the free space of the log directories is looked at.", low=1
    )
    log_read_ahead_bytes: int = integer(
        8 << 20,
        "How far ahead of a consumer or follower that reads in order the disk reads, by partition. 0 = as the system.",
    )
    log_initial_task_delay_ms: int = long(
        30_000, "Time from the start to the first retention, checkpoints and flushes by time."
    )
    log_record_validation: str = choice(
        "full",
        "How far the records of a produced batch are looked at: each one's length and offset, or the batch alone.",
        ("full", "batch"),
        dynamic=Update.CLUSTER_WIDE,
    )
    log_message_format_version: str = text(
        "3.0", "Release whose record format the log keeps; only with inter.broker.protocol.version below 3.0."
    )
    log_message_downconversion_enable: bool = boolean(
        True, "Answer old consumers in the record format that they know.", dynamic=Update.CLUSTER_WIDE
    )
    log_message_timestamp_type: str = choice(
        "CreateTime", "Whose clock stamps records.", ("CreateTime", "LogAppendTime"), dynamic=Update.CLUSTER_WIDE
    )
    log_message_timestamp_difference_max_ms: int = long(
        INT64_MAX,
        "How far a timestamp may lie from the broker's clock; older form of before and after.",
        dynamic=Update.CLUSTER_WIDE,
    )
    log_message_timestamp_before_max_ms: int = long(
        INT64_MAX, "How far a timestamp may lie in the past.", dynamic=Update.CLUSTER_WIDE
    )
    log_message_timestamp_after_max_ms: int = long(
        INT64_MAX, "How far a timestamp may lie in the future.", dynamic=Update.CLUSTER_WIDE
    )
    message_max_bytes: int = integer(MEBIBYTE + 12, "Largest record batch.", dynamic=Update.CLUSTER_WIDE)
    compression_type: str = choice(
        "producer", "Final compression; `producer` keeps what came.", CODEC_NAMES, dynamic=Update.CLUSTER_WIDE
    )
    compression_gzip_level: int = integer(
        -1, "Effort of gzip; -1 = its default.", low=-1, high=9, dynamic=Update.CLUSTER_WIDE
    )
    compression_lz4_level: int = integer(9, "Effort of lz4.", low=1, high=17, dynamic=Update.CLUSTER_WIDE)
    compression_zstd_level: int = integer(3, "Effort of zstd.", low=-131_072, high=22, dynamic=Update.CLUSTER_WIDE)
    # Apache Kafka has 2 since 4.0 (KIP-1030).
    num_recovery_threads_per_data_dir: int = integer(
        2, "Threads that load the logs of a directory.", low=1, dynamic=Update.CLUSTER_WIDE
    )
    num_replica_alter_log_dirs_threads: int | None = integer(
        None, "Replicas that move between log directories at once; default: the number of directories.", low=1
    )
    replica_alter_log_dirs_io_max_bytes_per_second: int = long(
        INT64_MAX,
        "Bytes that all moves of replicas between log directories copy in a second.",
        low=1,
        dynamic=Update.CLUSTER_WIDE,
    )
    leader_replication_throttled_rate: int = long(
        INT64_MAX,
        "Bytes a second that this broker sends to followers of leader.replication.throttled.replicas.",
        dynamic=Update.CLUSTER_WIDE,
    )
    follower_replication_throttled_rate: int = long(
        INT64_MAX,
        "Bytes a second that this broker fetches for follower.replication.throttled.replicas.",
        dynamic=Update.CLUSTER_WIDE,
    )
    producer_id_expiration_ms: int = integer(
        86_400_000, "Idle time after which a producer is forgotten.", low=1, dynamic=Update.CLUSTER_WIDE
    )

    # Topics
    num_partitions: int = integer(1, "Partitions of a topic that does not say.", low=1)
    default_replication_factor: int = integer(1, "Replicas of a topic that does not say.", low=1)
    min_insync_replicas: int = integer(
        1, "In-sync replicas without which acks=all is refused.", low=1, dynamic=Update.CLUSTER_WIDE
    )
    auto_create_topics_enable: bool = boolean(True, "Make topics that clients ask metadata of.")
    delete_topic_enable: bool = boolean(True, "Allow topics to be deleted.")
    unclean_leader_election_enable: bool = boolean(
        False, "Let a replica outside the in-sync set lead, losing records.", dynamic=Update.CLUSTER_WIDE
    )

    # Fetch and replication
    fetch_max_bytes: int = integer(55 * MEBIBYTE, "Largest fetch response.", low=1024)
    max_incremental_fetch_session_cache_slots: int = integer(1000, "Incremental fetch sessions kept (KIP-227).")
    num_replica_fetchers: int = integer(1, "Fetch loops to each leader.", low=1, dynamic=Update.CLUSTER_WIDE)
    replica_fetch_max_bytes: int = integer(MEBIBYTE, "Bytes fetched of one partition.")
    replica_fetch_response_max_bytes: int = integer(10 * MEBIBYTE, "Bytes of one replica fetch response.")
    replica_fetch_min_bytes: int = integer(1, "Bytes that a replica fetch waits for.")
    replica_fetch_wait_max_ms: int = integer(500, "Longest wait of a replica fetch.")
    replica_fetch_backoff_ms: int = integer(1000, "Rest after an error.")
    replica_lag_time_max_ms: int = long(
        30_000, "A follower that has not caught up for this long leaves the in-sync set."
    )
    replica_socket_timeout_ms: int = integer(30_000, "Longest wait for a leader's answer.", low=1)
    replica_selector_class: str | None = text(
        None,
        "How the leader picks the replica that a consumer reads from; default: consumers read from leaders.",
        choices=(
            "org.apache.kafka.common.replica.RackAwareReplicaSelector",
            "org.apache.kafka.common.replica.LeaderSelector",
        ),
    )
    replication_quota_window_num: int = integer(11, "Windows over which throttled replication is measured.", low=1)
    replication_quota_window_size_seconds: int = integer(1, "Length of one of these windows.", low=1)
    replica_high_watermark_checkpoint_interval_ms: int = long(5000, "How often high watermarks are written.", low=1)

    # Controller
    auto_leader_rebalance_enable: bool = boolean(True, "Give leadership back to preferred replicas.")
    leader_imbalance_check_interval_seconds: int = long(300, "How often that is checked.", low=1)
    leader_imbalance_per_broker_percentage: int = integer(10, "Imbalance that is tolerated for a broker.")
    controlled_shutdown_enable: bool = boolean(True, "Hand leadership over before stopping.")
    controlled_shutdown_max_retries: int = integer(3, "Attempts at it.")
    controlled_shutdown_retry_backoff_ms: int = long(5000, "Rest between attempts.")

    # Groups
    offsets_topic_num_partitions: int = integer(50, "Partitions of __consumer_offsets.", low=1)
    offsets_topic_replication_factor: int = short(3, "Replicas of __consumer_offsets.", low=1)
    offsets_topic_segment_bytes: int = integer(100 * MEBIBYTE, "Segment size of __consumer_offsets.", low=1)
    offsets_retention_minutes: int = integer(10_080, "How long offsets of an empty group are kept.", low=1)
    offsets_retention_check_interval_ms: int = long(600_000, "How often old offsets are looked for.", low=1)
    offsets_load_buffer_size: int = integer(5 * MEBIBYTE, "Bytes read at once when a group partition is loaded.", low=1)
    offsets_commit_timeout_ms: int = integer(5000, "Longest wait for an offset commit's replication.", low=1)
    offset_metadata_max_bytes: int = integer(4096, "Longest metadata of an offset commit.")
    group_min_session_timeout_ms: int = integer(6000, "Shortest session time-out a member may ask for.")
    group_max_session_timeout_ms: int = integer(1_800_000, "Longest session time-out a member may ask for.")
    group_initial_rebalance_delay_ms: int = integer(3000, "Wait for more members before a new group's first rebalance.")
    group_max_size: int = integer(INT32_MAX, "Members of one group.", low=1)

    inter_broker_protocol_version: str = text(
        "3.9", "Release whose requests brokers send each other, as 2.7 or 3.9-IV0; below 3.0 old record formats apply."
    )

    # Process
    process_supervision_enable: bool = boolean(
        True, "Run the broker under a small parent process that ends its ZooKeeper session at once when it dies."
    )
    process_hang_timeout_ms: int = long(
        20_000, "Standstill of the event loop after which the parent kills the broker; 0 = never."
    )

    # Observation
    metrics_host: str = text("0.0.0.0", "Address of /metrics, /healthz and /readyz.")
    metrics_port: int = integer(-1, "Port of /metrics, /healthz and /readyz; -1 = none.", low=-1, high=65_535)
