"""The demonstration `odradek demo`: real flights as events, a cluster, two Spark jobs, and a check of the result."""
