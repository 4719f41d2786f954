"""Metrics: what is counted and timed in a broker, under which name it is told, and how it is served.

Rooms count in plain integers that they own (`topics`, `requests`, `quantiles`) or answer questions (`collector`); a
scrape turns them into Prometheus families. So counting costs an addition on the data path, and whoever counts loads no
metrics library. `series` has every name; `http` and `process` serve other processes, too.
"""
