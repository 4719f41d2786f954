"""Creation and deletion of topics."""
