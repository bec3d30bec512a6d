"""One small program per contender, all with the same commands: see benchmarks/kit/protocol.py."""

import os

CONTENDERS_VARIABLE = "BENCH_CONTENDERS"
"""A folder whose programs run instead of these: those of another commit, whose API may differ."""

if folder := os.environ.get(CONTENDERS_VARIABLE):
    __path__.insert(0, folder)
