"""The ledger: the events of a run, what they name, and the fold that says which may follow which."""
