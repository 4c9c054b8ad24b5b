"""Statements over sets, one module per operation."""
