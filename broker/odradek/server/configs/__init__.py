"""Settings of brokers and topics: handlers, effective values and their store."""
