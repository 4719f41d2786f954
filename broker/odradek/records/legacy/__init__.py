"""Formats 0 and 1, which clients before Kafka 0.11 use: reads and writes messages, wrappers and message sets."""
