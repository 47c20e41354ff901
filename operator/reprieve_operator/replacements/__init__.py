"""What a replacement inherits: the ledger on its owner, bare pods created again, suspended Jobs."""
