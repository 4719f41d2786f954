"""The exporter of one cluster: lag, partitions and sizes as Prometheus series, and a report for the operator."""
