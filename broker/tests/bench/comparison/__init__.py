"""Benchmarks of Odradek beside Apache Kafka, run in turn on one machine by the same clients."""
