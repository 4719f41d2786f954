"""Other brokers in memory, for tests of the code that sends requests to them."""
