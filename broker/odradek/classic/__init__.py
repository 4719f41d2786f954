"""The consumers and producers of Kafka before 0.9, with the names of their documents (design note 0031)."""
