"""Commands that run in pods: they prepare the main process of the pod and accompany it."""
