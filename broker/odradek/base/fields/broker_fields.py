"""The settings of a broker that have an effect, with Kafka's names where Kafka has the setting.

`base/config` reads them from a properties file and from ZooKeeper; only it creates a `BrokerFields`. Names, types,
defaults and bounds follow https://kafka.apache.org/39/documentation/#brokerconfigs. Settings that Kafka has and this
broker does not use are in `base/settings_catalogue`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from odradek.base.fields.group_fields import MEBIBYTE, GroupFields
from odradek.base.setting_definitions import (
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
    text,
    words,
)

HOUR_MS: Final = 3_600_000
PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
"""The security protocols of listeners."""
AUTHORIZERS: Final = ("", "kafka.security.authorizer.AclAuthorizer", "kafka.security.auth.SimpleAclAuthorizer")
"""Kafka's authorizers that keep access rules in ZooKeeper, since 2.4 and before. This broker's behaves as they do."""
CODEC_NAMES: Final = ("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd")


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerFields(GroupFields):
    """The settings of one broker. Each attribute is the property of the same name with dots."""

    # Identity and directories
    broker_id: int = integer(-1, "Id of this broker in the cluster; must be unique.", low=-1)
    broker_rack: str | None = text(None, "Rack or zone of this broker; replicas are spread over racks.")
    broker_machine: str | None = text(None, "Machine of this broker; replicas are spread over machines within racks.")
    log_dir: str = text("/tmp/kafka-logs", "Log directories if log.dirs is not set.")
    log_dirs: tuple[str, ...] = parts(("/tmp/kafka-logs",), "Log directories, one per disk.")
    listeners: tuple[str, ...] = parts(
        ("PLAINTEXT://:9092",), "Addresses to listen on: NAME://host:port, ...", dynamic=Update.PER_BROKER
    )
    advertised_listeners: tuple[str, ...] = parts(
        (), "Addresses that clients connect to; default: listeners.", dynamic=Update.PER_BROKER
    )
    listener_security_protocol_map: tuple[str, ...] = parts(
        tuple(f"{protocol}:{protocol}" for protocol in PROTOCOLS),
        "Security protocol of each listener: NAME:PROTOCOL, ...",
        dynamic=Update.PER_BROKER,
    )
    inter_broker_listener_name: str | None = text(None, "Listener for connections between brokers; default: first.")
    security_inter_broker_protocol: str | None = text(
        None, "Name of the listener for connections between brokers, if it is that of its security protocol."
    )
    inter_broker_request_listeners: tuple[str, ...] = words((), "Other listeners that accept requests between brokers.")
    control_plane_listener_name: str | None = text(None, "Not used: the controller uses the inter-broker listener.")

    # ZooKeeper
    zookeeper_connect: str = text("", "ZooKeeper ensemble: host:port,host:port/chroot.")
    zookeeper_session_timeout_ms: int = integer(
        18_000, "Time without a heartbeat after which the session expires.", low=1
    )
    zookeeper_connection_timeout_ms: int | None = integer(
        None, "Timeout of the first connection; default: the session timeout.", low=1
    )
    zookeeper_max_in_flight_requests: int = integer(10, "Maximum number of concurrent requests to ZooKeeper.", low=1)
    initial_broker_registration_timeout_ms: int = integer(
        60_000, "How long to wait at startup while the broker id is in use.", low=0
    )
    zookeeper_jute_maxbuffer: int = integer(
        0xFFFFF, "Maximum size of a write in bytes; at most jute.maxbuffer of the servers.", low=1024
    )
    zookeeper_set_acl: bool = boolean(False, "Create znodes that only the brokers' ZooKeeper identity may change.")
    zookeeper_sasl_client: bool = boolean(True, "Authenticate with zookeeper.sasl.jaas.config if it is set.")
    zookeeper_sasl_jaas_config: str | None = secret(
        "JAAS entry of ZooKeeper's DigestLoginModule: user and password for SASL DIGEST-MD5."
    )
    zookeeper_auth_digest: str | None = secret("user:password for ZooKeeper's digest scheme, without SASL.")
    zookeeper_ssl_client_enable: bool = boolean(False, "Connect to ZooKeeper with TLS.")
    zookeeper_clientCnxnSocket: str | None = text(  # noqa: N815 - the property's own spelling
        None, "org.apache.zookeeper.ClientCnxnSocketNetty, required for TLS as in Java; no other effect."
    )
    zookeeper_ssl_keystore_location: str | None = text(
        None, "File with the broker's private key and certificates: PEM, PKCS12 or JKS."
    )
    zookeeper_ssl_keystore_password: str | None = secret("Password of the file and of its key.")
    zookeeper_ssl_keystore_type: str | None = text(None, "PEM, PKCS12 or JKS; default: from its content.")
    zookeeper_ssl_truststore_location: str | None = text(
        None, "File with the trusted certificates: PEM, PKCS12 or JKS; default: the system's."
    )
    zookeeper_ssl_truststore_password: str | None = secret("Password of the file. PEM has none.")
    zookeeper_ssl_truststore_type: str | None = text(None, "PEM, PKCS12 or JKS; default: from its content.")
    zookeeper_ssl_protocol: str = text("TLSv1.2", "Protocol if zookeeper.ssl.enabled.protocols is empty.")
    zookeeper_ssl_enabled_protocols: tuple[str, ...] = words((), "Protocols: TLSv1.2, TLSv1.3.")
    zookeeper_ssl_cipher_suites: tuple[str, ...] = words((), "Cipher suites of TLSv1.2, with Java's names.")
    zookeeper_ssl_endpoint_identification_algorithm: str = text(
        "HTTPS", "HTTPS: the server's certificate must match the host in zookeeper.connect; empty: any certificate."
    )
    zookeeper_ssl_crl_enable: bool = boolean(
        False, "Reject certificates that a revocation list in the truststore contains."
    )
    zookeeper_ssl_ocsp_enable: bool = boolean(False, "Not supported.")

    # Network
    initial_metadata_wait_max_ms: int = integer(
        3000,
        "How long Metadata and DescribeCluster requests to a starting broker wait for the controller's first metadata; "
        "then the connection is closed, or DescribeCluster is answered with BROKER_NOT_AVAILABLE.",
    )
    socket_request_max_bytes: int = integer(
        100 * MEBIBYTE, "Maximum request size; larger requests are rejected unread.", low=1
    )
    queued_max_request_bytes: int = long(
        -1,
        "Memory of all requests that are being received; when it is used, larger requests wait. -1 or 0 = no limit.",
        low=-1,
    )
    queued_max_request_slow_ms: int = long(
        30_000,
        "Time for which a client that sends its request or reads its responses slowly keeps that memory while others "
        "wait for it; then its connection is closed.",
        low=1,
    )
    socket_send_buffer_bytes: int = integer(100 * 1024, "SO_SNDBUF; -1 = default of the system.", low=-1)
    socket_receive_buffer_bytes: int = integer(100 * 1024, "SO_RCVBUF; -1 = default of the system.", low=-1)
    socket_listen_backlog_size: int = integer(50, "Maximum number of connections waiting to be accepted.", low=1)
    max_connections: int = integer(
        INT32_MAX, "Maximum number of connections of a listener.", dynamic=Update.CLUSTER_WIDE, of_listener=True
    )
    max_connection_creation_rate: int = integer(
        INT32_MAX,
        "Maximum number of new connections of a listener per second; others wait. A listener without TLS that starts "
        "without a rate gets one only at the next start.",
        low=1,
        dynamic=Update.CLUSTER_WIDE,
        of_listener=True,
    )
    max_connections_per_ip: int = integer(
        INT32_MAX, "Maximum number of connections per IP address.", dynamic=Update.CLUSTER_WIDE
    )
    connection_handshake_timeout_ms: int = long(
        10_000,
        "Time from accepting a connection to the end of its TLS handshake and its login; then it is closed.",
        low=1,
        of_listener=True,
    )
    connections_max_idle_ms: int = long(600_000, "Idle time after which a connection is closed.")
    max_in_flight_requests_per_connection: int = integer(
        64, "Maximum number of concurrent Produce requests of a connection; at the maximum, reading pauses.", low=1
    )
    connections_max_reauth_ms: int = long(
        0,
        "Time after which a client must authenticate again; 0 = only when its credentials expire. Also with the prefix "
        "of a mechanism.",
        of_listener=True,
    )
    connection_failed_authentication_delay_ms: int = integer(
        100, "Time until a client whose authentication failed gets the answer and its connection is closed."
    )
    request_timeout_ms: int = integer(30_000, "Timeout of requests to other brokers.", low=1)

    # Authorization
    authorizer_class_name: str = choice(
        "",
        "kafka.security.authorizer.AclAuthorizer: clients may do what the access rules in ZooKeeper allow. Empty: "
        "everyone may do everything.",
        AUTHORIZERS,
    )
    super_users: str | None = text(
        None, "Users who may do everything: User:name, separated by semicolons. Needs authorizer.class.name."
    )
    allow_everyone_if_no_acl_found: bool = boolean(
        False, "Whether everyone may use a resource that has no access rule. Needs authorizer.class.name."
    )

    # Delegation tokens
    delegation_token_secret_key: str | None = secret(
        "Secret of all delegation tokens, the same on all brokers. Without it, there are no tokens."
    )
    delegation_token_master_key: str | None = secret("Old name of delegation.token.secret.key.")
    delegation_token_max_lifetime_ms: int = long(
        604_800_000, "Maximum lifetime of a delegation token; it cannot be renewed beyond it.", low=1
    )
    delegation_token_expiry_time_ms: int = long(
        86_400_000, "Time after which a delegation token expires unless it is renewed.", low=1
    )
    delegation_token_expiry_check_interval_ms: int = long(
        3_600_000, "Interval at which the controller removes expired delegation tokens.", low=1
    )

    # Security of listeners
    ssl_keystore_location: str | None = text(
        None, "File with the listener's private key and certificates.", dynamic=Update.PER_BROKER, of_listener=True
    )
    ssl_keystore_password: str | None = secret(
        "Password of the file. PEM has none.", dynamic=Update.PER_BROKER, of_listener=True
    )
    ssl_keystore_type: str = text("JKS", "JKS, PKCS12 or PEM.", dynamic=Update.PER_BROKER, of_listener=True)
    ssl_keystore_key: str | None = secret(
        "Private key in PEM, instead of a file.", dynamic=Update.PER_BROKER, of_listener=True
    )
    ssl_keystore_certificate_chain: str | None = secret(
        "Its certificates in PEM.", dynamic=Update.PER_BROKER, of_listener=True
    )
    ssl_key_password: str | None = secret("Password of the private key.", dynamic=Update.PER_BROKER, of_listener=True)
    ssl_truststore_location: str | None = text(
        None, "File with the authorities of client certificates.", dynamic=Update.PER_BROKER, of_listener=True
    )
    ssl_truststore_password: str | None = secret(
        "Password of the file. PEM has none.", dynamic=Update.PER_BROKER, of_listener=True
    )
    ssl_truststore_type: str = text("JKS", "JKS, PKCS12 or PEM.", dynamic=Update.PER_BROKER, of_listener=True)
    ssl_truststore_certificates: str | None = secret(
        "These authorities in PEM, instead of a file.", dynamic=Update.PER_BROKER, of_listener=True
    )
    ssl_client_auth: str = text(
        "none",
        "Whether clients need a certificate: none, requested or required. With SASL only with a listener's prefix.",
        dynamic=Update.PER_BROKER,
        of_listener=True,
    )
    ssl_principal_mapping_rules: str = text(
        "DEFAULT", "Rules that make the name of a user of that of the client certificate.", of_listener=True
    )
    ssl_endpoint_identification_algorithm: str = text(
        "https",
        "https: brokers verify each other's host names. Empty: they do not.",
        dynamic=Update.PER_BROKER,
        of_listener=True,
    )
    ssl_protocol: str = text(
        "TLSv1.3", "Highest version: TLSv1.2 or TLSv1.3.", dynamic=Update.PER_BROKER, of_listener=True
    )
    ssl_enabled_protocols: tuple[str, ...] = words(
        ("TLSv1.2", "TLSv1.3"), "Versions: TLSv1.2, TLSv1.3.", dynamic=Update.PER_BROKER, of_listener=True
    )
    ssl_cipher_suites: tuple[str, ...] = words(
        (), "Cipher suites with Java's names; default: those of OpenSSL.", dynamic=Update.PER_BROKER, of_listener=True
    )
    sasl_enabled_mechanisms: tuple[str, ...] = words(
        (),
        "SASL mechanisms: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER.",
        dynamic=Update.PER_BROKER,
        of_listener=True,
    )
    sasl_jaas_config: str | None = secret(
        "JAAS entry of a mechanism; only as listener.name.NAME.MECHANISM.sasl.jaas.config.",
        dynamic=Update.PER_BROKER,
        of_listener=True,
    )
    sasl_mechanism_inter_broker_protocol: str = text(
        "GSSAPI", "SASL mechanism with which brokers log in to each other.", dynamic=Update.PER_BROKER
    )
    sasl_server_max_receive_size: int = integer(
        524_288, "Maximum size of a request before the client has authenticated.", low=1, of_listener=True
    )
    sasl_oauthbearer_token_endpoint_url: str | None = text(
        None, "Address or file: URL of the tokens with which brokers log in to each other.", of_listener=True
    )
    sasl_login_connect_timeout_ms: int | None = integer(
        None, "Timeout for connecting to that address.", low=1, of_listener=True
    )
    sasl_login_read_timeout_ms: int | None = integer(
        None, "Timeout for an answer of that address.", low=1, of_listener=True
    )
    sasl_oauthbearer_jwks_endpoint_url: str | None = text(
        None, "Address or file: URL of the keys that verify tokens.", of_listener=True
    )
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = long(
        3_600_000, "Interval in which the keys are loaded again.", low=1, of_listener=True
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_ms: int = long(
        100, "First wait after a failed attempt.", low=1, of_listener=True
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms: int = long(
        10_000, "Longest wait after failed attempts.", low=1, of_listener=True
    )
    sasl_oauthbearer_expected_audience: tuple[str, ...] = words(
        (), "Audiences, of which a token must have one; without them, a token must have none.", of_listener=True
    )
    sasl_oauthbearer_expected_issuer: str | None = text(None, "Issuer that a token must have.", of_listener=True)
    sasl_oauthbearer_clock_skew_seconds: int = integer(
        30, "Tolerated difference of clocks for the times in a token.", of_listener=True
    )
    sasl_oauthbearer_scope_claim_name: str = text("scope", "Claim with the scopes.", of_listener=True)
    sasl_oauthbearer_sub_claim_name: str = text("sub", "Claim with the name of the user.", of_listener=True)

    # Log
    log_segment_bytes: int = integer(1 << 30, "Size at which a segment rolls.", low=14, dynamic=Update.CLUSTER_WIDE)
    log_roll_ms: int | None = long(
        None, "Age at which a segment rolls; default: log.roll.hours.", low=1, dynamic=Update.CLUSTER_WIDE
    )
    log_roll_hours: int = integer(168, "Age at which a segment rolls.", low=1)
    log_roll_jitter_ms: int | None = long(
        None, "Maximum random reduction of log.roll.ms; default: log.roll.jitter.hours.", dynamic=Update.CLUSTER_WIDE
    )
    log_roll_jitter_hours: int = integer(0, "Maximum random reduction of log.roll.hours.")
    log_retention_ms: int | None = long(
        None,
        "Age at which segments are deleted, -1 = never; default: log.retention.minutes.",
        low=-1,
        dynamic=Update.CLUSTER_WIDE,
    )
    log_retention_minutes: int | None = integer(
        None, "Age at which segments are deleted; default: log.retention.hours.", low=-1
    )
    log_retention_hours: int = integer(168, "Age at which segments are deleted.", low=-1)
    log_retention_bytes: int = long(
        -1, "Size above which the oldest segments are deleted; -1 = no limit.", low=-1, dynamic=Update.CLUSTER_WIDE
    )
    log_retention_check_interval_ms: int = long(300_000, "Interval between retention checks.", low=1)
    log_cleanup_policy: tuple[str, ...] = words(
        ("delete",),
        "Policy for old segments: delete, compact or both.",
        choices=("compact", "delete"),
        dynamic=Update.CLUSTER_WIDE,
    )
    log_cleaner_delete_retention_ms: int = long(
        24 * HOUR_MS, "Time that tombstones are kept.", dynamic=Update.CLUSTER_WIDE
    )
    log_cleaner_min_cleanable_ratio: float = real(
        0.5, "Minimum dirty ratio for a log to be compacted.", high=1.0, dynamic=Update.CLUSTER_WIDE
    )
    log_cleaner_min_compaction_lag_ms: int = long(
        0, "Minimum time before a record may be compacted.", dynamic=Update.CLUSTER_WIDE
    )
    log_cleaner_max_compaction_lag_ms: int = long(
        INT64_MAX, "Maximum time until a record is eligible for compaction.", low=1, dynamic=Update.CLUSTER_WIDE
    )
    log_cleaner_enable: bool = boolean(True, "Compact the topics whose cleanup.policy contains compact.")
    log_cleaner_threads: int = integer(1, "Number of compaction processes.", dynamic=Update.CLUSTER_WIDE)
    log_cleaner_io_max_bytes_per_second: float = real(
        1.7976931348623157e308,
        "Maximum bytes per second that compaction reads and writes.",
        dynamic=Update.CLUSTER_WIDE,
    )
    log_cleaner_dedupe_buffer_size: int = long(
        128 * MEBIBYTE,
        "Memory of all compaction processes for the maps from keys to offsets.",
        low=1024,
        dynamic=Update.CLUSTER_WIDE,
    )
    log_cleaner_io_buffer_size: int = integer(512 * 1024, "Read buffer of compaction.", dynamic=Update.CLUSTER_WIDE)
    log_cleaner_io_buffer_load_factor: float = real(
        0.9, "Maximum load factor of the maps from keys to offsets.", high=1.0, dynamic=Update.CLUSTER_WIDE
    )
    log_cleaner_backoff_ms: int = long(15_000, "Pause if there is nothing to compact.", dynamic=Update.CLUSTER_WIDE)
    log_index_size_max_bytes: int = integer(
        10 * MEBIBYTE, "Maximum size of a segment's index.", low=4, dynamic=Update.CLUSTER_WIDE
    )
    log_index_interval_bytes: int = integer(4096, "Bytes between two entries of an index.", dynamic=Update.CLUSTER_WIDE)
    log_index_cache_bytes: int = long(
        64 * MEBIBYTE,
        "Memory for the indexes of sealed segments that are read; the segment read last is always kept.",
        dynamic=Update.CLUSTER_WIDE,
    )
    log_flush_interval_messages: int = long(
        INT64_MAX, "Records after which a log is flushed.", low=1, dynamic=Update.CLUSTER_WIDE
    )
    log_flush_interval_ms: int | None = long(
        None,
        "Time after which a log is flushed; default: log.flush.scheduler.interval.ms.",
        dynamic=Update.CLUSTER_WIDE,
    )
    log_flush_scheduler_interval_ms: int = long(INT64_MAX, "Interval between checks for logs to flush.")
    log_flush_offset_checkpoint_interval_ms: int = integer(60_000, "Interval between checkpoints of recovery points.")
    log_flush_start_offset_checkpoint_interval_ms: int = integer(
        60_000, "Interval between checkpoints of start offsets."
    )
    log_preallocate: bool = boolean(False, "Preallocate new segments in full size.", dynamic=Update.CLUSTER_WIDE)
    log_segment_delete_delay_ms: int = long(
        60_000, "Time from renaming a file to .deleted until its deletion.", dynamic=Update.CLUSTER_WIDE
    )
    log_dir_min_free_bytes: int = long(
        1 << 30,
        "Free space of a log directory below which writes are rejected; at most 5 % of its disk. 0 = off.",
        dynamic=Update.CLUSTER_WIDE,
    )
    log_dir_free_check_interval_ms: int = long(
        3000, "Interval between checks of the free space of log directories.", low=1
    )
    log_dir_stall_timeout_ms: int = long(
        30_000,
        "Time without an answer of its disk after which a log directory goes offline. 0 = never.",
    )
    log_dir_check_interval_ms: int = long(
        5000,
        "Maximum interval of a small write and sync in each log directory, which shows whether its disk answers and "
        "is slow. 0 = none.",
    )
    log_dir_slow_ms: int = long(
        200,
        "Time after which a log directory counts as slow if its disk has not completed a small write and sync, which "
        "then starts every five times this; its appends are written by a thread, as always on remote file systems "
        "(NFS, FUSE and others). 0 = never.",
    )
    log_dir_queue_max_bytes: int = long(
        256 << 20,
        "Bytes of appends that may wait for a slow log directory; further ones are rejected.",
        low=1,
        dynamic=Update.CLUSTER_WIDE,
    )
    log_read_ahead_bytes: int = integer(
        8 << 20,
        "Read-ahead per partition for sequential consumers and followers. 0 = only the system's.",
    )
    log_initial_task_delay_ms: int = long(
        30_000, "Delay after start until the first retention check, checkpoints and scheduled flushes."
    )
    log_record_validation: str = choice(
        "full",
        "Validation of produced batches: the length and offset of each record, or the batch header only.",
        ("full", "batch"),
        dynamic=Update.CLUSTER_WIDE,
    )
    log_message_format_version: str = text(
        "3.0",
        "Release that determines the record format; has an effect only with inter.broker.protocol.version below 3.0.",
    )
    log_message_downconversion_enable: bool = boolean(
        True, "Convert records to the format that old consumers support.", dynamic=Update.CLUSTER_WIDE
    )
    log_message_timestamp_type: str = choice(
        "CreateTime", "Source of record timestamps.", ("CreateTime", "LogAppendTime"), dynamic=Update.CLUSTER_WIDE
    )
    log_message_timestamp_difference_max_ms: int = long(
        INT64_MAX,
        "Maximum difference of a timestamp from the broker's clock. Deprecated: use the settings for before and after.",
        dynamic=Update.CLUSTER_WIDE,
    )
    log_message_timestamp_before_max_ms: int = long(
        INT64_MAX, "Maximum time by which a timestamp may be before the broker's clock.", dynamic=Update.CLUSTER_WIDE
    )
    log_message_timestamp_after_max_ms: int = long(
        INT64_MAX, "Maximum time by which a timestamp may be after the broker's clock.", dynamic=Update.CLUSTER_WIDE
    )
    message_max_bytes: int = integer(MEBIBYTE + 12, "Maximum size of a record batch.", dynamic=Update.CLUSTER_WIDE)
    compression_type: str = choice(
        "producer",
        "Compression in the log; `producer` keeps the compression of the producer.",
        CODEC_NAMES,
        dynamic=Update.CLUSTER_WIDE,
    )
    compression_gzip_level: int = integer(
        -1, "Compression level of gzip; -1 = its default.", low=-1, high=9, dynamic=Update.CLUSTER_WIDE
    )
    compression_lz4_level: int = integer(9, "Compression level of lz4.", low=1, high=17, dynamic=Update.CLUSTER_WIDE)
    compression_zstd_level: int = integer(
        3, "Compression level of zstd.", low=-131_072, high=22, dynamic=Update.CLUSTER_WIDE
    )
    # Apache Kafka has 2 since 4.0 (KIP-1030).
    num_recovery_threads_per_data_dir: int = integer(
        2, "Threads that load the logs of a directory.", low=1, dynamic=Update.CLUSTER_WIDE
    )
    num_replica_alter_log_dirs_threads: int | None = integer(
        None, "Maximum number of concurrent moves between log directories; default: number of directories.", low=1
    )
    replica_alter_log_dirs_io_max_bytes_per_second: int = long(
        INT64_MAX,
        "Maximum bytes per second of all replica moves between log directories.",
        low=1,
        dynamic=Update.CLUSTER_WIDE,
    )
    leader_replication_throttled_rate: int = long(
        INT64_MAX,
        "Maximum bytes per second sent to followers of leader.replication.throttled.replicas.",
        dynamic=Update.CLUSTER_WIDE,
    )
    follower_replication_throttled_rate: int = long(
        INT64_MAX,
        "Maximum bytes per second fetched for follower.replication.throttled.replicas.",
        dynamic=Update.CLUSTER_WIDE,
    )
    producer_id_expiration_ms: int = integer(
        86_400_000, "Idle time after which a producer id expires.", low=1, dynamic=Update.CLUSTER_WIDE
    )

    # Topics
    num_partitions: int = integer(1, "Default number of partitions of a topic.", low=1)
    default_replication_factor: int = integer(1, "Default replication factor of a topic.", low=1)
    min_insync_replicas: int = integer(
        1, "Minimum number of in-sync replicas for acks=all.", low=1, dynamic=Update.CLUSTER_WIDE
    )
    auto_create_topics_enable: bool = boolean(True, "Create topics automatically when clients use them.")
    delete_topic_enable: bool = boolean(True, "Allow topics to be deleted.")
    unclean_leader_election_enable: bool = boolean(
        False, "Allow a replica outside the ISR to become leader, which loses records.", dynamic=Update.CLUSTER_WIDE
    )

    # Fetch and replication
    fetch_max_bytes: int = integer(55 * MEBIBYTE, "Maximum size of a fetch response.", low=1024)
    max_incremental_fetch_session_cache_slots: int = integer(1000, "Maximum number of fetch sessions (KIP-227).")
    num_replica_fetchers: int = integer(1, "Number of fetch loops per leader.", low=1, dynamic=Update.CLUSTER_WIDE)
    producer_purgatory_purge_interval_requests: int = integer(
        1000, "Completed Produce requests above which the lists of waiting requests are purged."
    )
    fetch_purgatory_purge_interval_requests: int = integer(
        1000, "Completed Fetch requests above which the lists of waiting requests are purged."
    )
    delete_records_purgatory_purge_interval_requests: int = integer(
        1, "Completed DeleteRecords requests above which the lists of waiting requests are purged."
    )
    replica_fetch_max_bytes: int = integer(MEBIBYTE, "Maximum bytes per partition in a replica fetch.")
    replica_fetch_response_max_bytes: int = integer(10 * MEBIBYTE, "Maximum size of a replica fetch response.")
    replica_fetch_min_bytes: int = integer(1, "Minimum bytes of a replica fetch response.")
    replica_fetch_wait_max_ms: int = integer(500, "Maximum wait of a replica fetch.")
    replica_fetch_backoff_ms: int = integer(1000, "Pause after a failed fetch.")
    replica_lag_time_max_ms: int = long(
        30_000, "A follower that has not caught up for this long is removed from the ISR."
    )
    replica_socket_timeout_ms: int = integer(30_000, "Timeout of requests to a leader.", low=1)
    replica_selector_class: str | None = text(
        None,
        "Selection of the replica that a consumer reads from; default: the leader.",
        choices=(
            "org.apache.kafka.common.replica.RackAwareReplicaSelector",
            "org.apache.kafka.common.replica.LeaderSelector",
        ),
    )
    quota_window_num: int = integer(11, "Number of windows for measuring clients with quotas.", low=1)
    quota_window_size_seconds: int = integer(1, "Length of each window.", low=1)
    controller_quota_window_num: int = integer(
        11, "Number of windows in which the burst of a controller_mutation_rate quota accumulates.", low=1
    )
    controller_quota_window_size_seconds: int = integer(1, "Length of each window.", low=1)
    replication_quota_window_num: int = integer(11, "Number of windows for measuring throttled replication.", low=1)
    replication_quota_window_size_seconds: int = integer(1, "Length of each window.", low=1)
    replica_high_watermark_checkpoint_interval_ms: int = long(
        5000, "Interval between checkpoints of high watermarks.", low=1
    )

    # Controller
    auto_leader_rebalance_enable: bool = boolean(True, "Move leadership back to preferred replicas automatically.")
    leader_imbalance_check_interval_seconds: int = long(300, "Interval between checks of the leader imbalance.", low=1)
    leader_imbalance_per_broker_percentage: int = integer(
        10, "Percentage of a broker's partitions that may be led by other replicas before leadership moves back."
    )
    controlled_shutdown_enable: bool = boolean(True, "Move leadership to other brokers before this broker stops.")
    controlled_shutdown_max_retries: int = integer(3, "Number of attempts of a controlled shutdown.")
    controlled_shutdown_retry_backoff_ms: int = long(5000, "Pause between attempts of a controlled shutdown.")

    inter_broker_protocol_version: str = text(
        "3.9",
        "Release of the protocol between brokers, such as 2.7 or 3.9-IV0; below 3.0 old record formats apply.",
    )

    # Process
    process_supervision_enable: bool = boolean(
        True, "Run the broker under a small parent process that ends its ZooKeeper session if it crashes."
    )
    process_hang_timeout_ms: int = long(
        20_000, "Time without a heartbeat of the event loop after which the parent kills the broker; 0 = never."
    )
