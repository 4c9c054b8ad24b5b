"""What a user tests with: samples, graphs, histories and drives, the same that this project tests itself with."""
