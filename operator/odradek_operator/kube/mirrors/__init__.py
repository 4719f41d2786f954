"""The loop of a Mirror, and the requests for the metrics of its pods."""
