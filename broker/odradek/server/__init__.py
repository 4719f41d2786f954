"""Request handlers, one module for each group of APIs, and the dispatcher."""
