"""One small program per contender, all with the same commands: see benchmarks/kit/protocol.py."""
