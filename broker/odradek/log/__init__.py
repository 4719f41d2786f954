"""The log of one broker: segments, indexes, producer state, epochs, recovery, retention and log directories."""
