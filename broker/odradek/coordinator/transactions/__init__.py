"""The transaction coordinator (KIP-98): transactional ids, their transactions, and the markers that end them."""
