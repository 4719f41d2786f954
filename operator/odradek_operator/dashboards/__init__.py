"""Dashboards for Grafana and alerts for Prometheus, described once and in Python. Pure, but for `generate`.

Enters: nothing, or the one cluster that alerts shall be of. Leaves: `files.files()`, the text of every file of the
chart that is made from here, and `rules.rule_groups()`. `generate` writes the files; tests hold them fresh and see that
each series in a query is one that a process of ours, or Kubernetes, serves.
"""
