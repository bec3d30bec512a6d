"""`python -m benchmarks.kit NAME COMMAND …` runs one command of contender NAME; see protocol.py."""

from __future__ import annotations

import importlib
import sys

from benchmarks.kit.protocol import main

if __name__ == "__main__":
    # Imported, not run: job systems name tasks by their module, which must be the same here and in workers.
    module = importlib.import_module(f"benchmarks.contenders.{sys.argv[1]}")
    main(module.CONTENDER, sys.argv[2:])
