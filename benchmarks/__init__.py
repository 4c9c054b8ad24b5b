"""Measure the library beside the floor that PostgreSQL and the driver set, in one run on one machine."""
