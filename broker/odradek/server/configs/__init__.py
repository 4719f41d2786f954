"""Settings of brokers and topics: handlers, values in force and their store."""
