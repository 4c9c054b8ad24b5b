"""State machines that hold the library's rules against models: of submissions, fences, replays and lifecycles.

Each machine exists twice. The first one works on the pure domain, where thousands of examples cost seconds; the one
whose name begins with ``Stored`` works on a real database and takes fewer.
"""
