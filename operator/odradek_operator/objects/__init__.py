"""What is wanted of Kubernetes for one cluster, as plain objects: builders without I/O."""
