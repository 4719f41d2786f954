"""The keyword arguments of the clients, for type checkers and editors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypedDict

from odradek.client.extensions.interceptors import ConsumerInterceptor, ProducerInterceptor
from odradek.client.extensions.serializers import Deserializer, Serializer
from odradek.client.producer.partitioning import Partitioner


class ClientKeywords(TypedDict, total=False):
    """Each setting of `ClientSettings`, with its name, unit, default and bounds, as an optional keyword argument.

    A list can also be text with commas.
    """

    security_protocol: str
    ssl_truststore_type: str | None
    ssl_truststore_location: str | None
    ssl_truststore_password: str | None
    ssl_truststore_certificates: str | None
    ssl_keystore_type: str | None
    ssl_keystore_location: str | None
    ssl_keystore_password: str | None
    ssl_keystore_key: str | None
    ssl_keystore_certificate_chain: str | None
    ssl_key_password: str | None
    ssl_endpoint_identification_algorithm: str | None
    ssl_protocol: str | None
    ssl_enabled_protocols: str | None
    ssl_cipher_suites: str | None
    ssl_provider: str | None
    ssl_engine_factory_class: str | None
    ssl_keymanager_algorithm: str | None
    ssl_trustmanager_algorithm: str | None
    ssl_secure_random_implementation: str | None
    sasl_mechanism: str | None
    sasl_jaas_config: str | None
    sasl_oauthbearer_token_endpoint_url: str | None
    sasl_oauthbearer_header_urlencode: str | None
    sasl_login_connect_timeout_ms: str | None
    sasl_login_read_timeout_ms: str | None
    sasl_client_callback_handler_class: str | None
    sasl_login_callback_handler_class: str | None
    sasl_login_class: str | None
    bootstrap_servers: str | Sequence[str]
    client_id: str
    client_rack: str
    request_timeout_ms: int
    default_api_timeout_ms: int
    socket_connection_setup_timeout_ms: int
    metadata_max_age_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    reconnect_backoff_ms: int
    reconnect_backoff_max_ms: int
    allow_auto_create_topics: bool
    acks: str | int
    enable_idempotence: bool | None
    linger_ms: int
    batch_size: int
    buffer_memory: int
    compression_type: str
    delivery_timeout_ms: int
    max_block_ms: int
    max_in_flight_requests_per_connection: int
    max_request_size: int
    retries: int
    transactional_id: str | None
    transaction_timeout_ms: int
    group_id: str | None
    group_instance_id: str | None
    auto_offset_reset: str
    enable_auto_commit: bool
    auto_commit_interval_ms: int
    isolation_level: str
    fetch_min_bytes: int
    fetch_max_wait_ms: int
    fetch_max_bytes: int
    max_partition_fetch_bytes: int
    max_poll_records: int
    max_poll_interval_ms: int
    session_timeout_ms: int
    heartbeat_interval_ms: int
    group_protocol: str
    group_remote_assignor: str | None
    partition_assignment_strategy: str | Sequence[str]
    exclude_internal_topics: bool
    check_crcs: bool


class ProducerKeywords(ClientKeywords, total=False):
    """The keyword arguments of `Producer`."""

    key_serializer: Serializer | Callable[[Any], bytes] | None
    value_serializer: Serializer | Callable[[Any], bytes] | None
    partitioner: Partitioner | str
    interceptors: Sequence[ProducerInterceptor]


class ConsumerKeywords(ClientKeywords, total=False):
    """The keyword arguments of `Consumer`."""

    key_deserializer: Deserializer | Callable[[bytes], Any] | None
    value_deserializer: Deserializer | Callable[[bytes], Any] | None
    interceptors: Sequence[ConsumerInterceptor]
