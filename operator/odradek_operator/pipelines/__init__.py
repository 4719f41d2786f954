"""Pipeline resources: Spark jobs that the operator runs. All modules are pure; `kube/pipelines` acts on them."""
