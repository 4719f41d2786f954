"""The operator on Kubernetes: API client, watches, leases, and the loop of each cluster."""
