"""The five steps of dubbing, and the frame that each of their attempts runs in."""
