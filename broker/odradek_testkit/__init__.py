"""Kit of the project's tests: simulation, crash torture, parts of a broker in memory, Apache Kafka as a reference."""
