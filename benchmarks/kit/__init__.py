"""What every contender's program shares. Only the standard library: it runs in environments without Stagepost."""
