"""`odradek perf`: measures the throughput and latency of a cluster."""
