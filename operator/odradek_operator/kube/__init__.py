"""The shell towards Kubernetes: client, watches, lease, and the loop that carries decisions out."""
