"""Format 2, which Kafka has used since 0.11: batch headers and builders, single records, varints."""
