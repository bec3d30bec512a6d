"""One small program per contender, all with the same commands: see benchmarks/kit/protocol.py."""

import os

CONTENDERS_VARIABLE = "BENCH_CONTENDERS"
"""A folder whose programs are run instead of those here: of another commit, whose API may be another one."""

if folder := os.environ.get(CONTENDERS_VARIABLE):
    __path__.insert(0, folder)
