"""The exporter of one cluster: consumer lag and log sizes as Prometheus series, and a report for the operator."""
