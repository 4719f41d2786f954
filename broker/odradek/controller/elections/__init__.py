"""Leader elections: rules, candidates, and the elections that users and the balancer request."""
