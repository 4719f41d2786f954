"""The source on the driver: which partitions and offsets a query reads, and in which tasks."""
