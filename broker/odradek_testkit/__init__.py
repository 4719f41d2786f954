"""Test support: simulation, crash tests of logs, parts of a broker in memory, and Apache Kafka as a reference."""
