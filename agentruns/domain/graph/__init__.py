"""Graphs: their definition, what a node may return, and the pure function that decides the next step."""

from __future__ import annotations
