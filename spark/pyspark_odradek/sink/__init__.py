"""The sink: from the rows of a query to acknowledged record batches."""
