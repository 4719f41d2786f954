"""Odradek: a Kafka-compatible broker, its client library and its command line."""

__version__ = "0.1.0"
