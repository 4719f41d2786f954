"""Requests from the controller to brokers: batching, versions, dispatch and answers."""
