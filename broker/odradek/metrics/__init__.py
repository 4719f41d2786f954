"""Metrics: what a broker counts and measures, under which names, and how it is exposed.

The components count in plain integers (`topic_stats`, `request_stats`, `quantiles`) or return values on demand. At a
scrape, `collector` converts them into Prometheus families. So counting costs an addition on the data path, and the
components do not import the metrics library. `series` has all names; other processes use `http` and `process`, too.
"""
