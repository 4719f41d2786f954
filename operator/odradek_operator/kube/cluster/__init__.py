"""The loop of one cluster: observe, decide, act and report."""
