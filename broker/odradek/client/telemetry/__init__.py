"""The metrics of clients."""
