"""Runs in memory: the library's own rules and plans, a journal without a database, and workers that die on request."""
