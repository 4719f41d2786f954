"""Which client may do what: the authorizer, and the rights that each API requires."""
