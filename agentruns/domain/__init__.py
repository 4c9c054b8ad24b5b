"""What is true: frozen records and pure functions. No database, no clock, no I/O."""
