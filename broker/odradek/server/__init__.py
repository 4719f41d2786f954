"""Requests to answers: one module for each family of APIs, one that dispatches."""
