"""Access to the Kubernetes API server: requests, writes and ownership."""
