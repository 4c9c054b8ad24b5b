"""What a user tests with: laws, strategies, state machines, runs in memory, samples, graphs, histories and drives.

It is the same that this project tests itself with.
"""
