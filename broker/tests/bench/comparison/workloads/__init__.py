"""The workloads of scenarios: immutable descriptions with the steps that the runner calls."""
