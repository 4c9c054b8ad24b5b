"""Durable agent runs for SQLAlchemy applications: submit once, drive on evidence, read what was verified."""
