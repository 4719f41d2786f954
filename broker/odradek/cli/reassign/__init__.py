"""`odradek reassign`: plans, starts and watches the moves of replicas between brokers."""
