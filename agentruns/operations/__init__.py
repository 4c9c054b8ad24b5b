"""What an operator does: the embedded server, the schema's verification."""
