"""Benchmarks of Odradek and Apache Kafka, which run alternately on one machine with the same clients."""
