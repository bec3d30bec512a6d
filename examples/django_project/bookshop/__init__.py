"""The project: its settings and its URLs."""
