"""Dashboards for Grafana and alerts for Prometheus, generated from Python. Pure, except `generate_dashboards`.

`files.files()` returns the text of all generated files of the chart. `rules.rule_groups()` returns the alerts for all
clusters or for one. `generate_dashboards` writes the files. Tests check that the files are current, and that each
series in a query is exported by one of our processes or by Kubernetes.
"""
