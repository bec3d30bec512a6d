"""The demo as a user runs it: a talk is made and dubbed, the worker is killed while it speaks, the sums are right."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.prove
def test_a_worker_killed_while_it_speaks_costs_no_segment(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "stagepost_dubbing", "demo", "--quick", "--json"],
        env=os.environ | {"TMPDIR": str(tmp_path), "DUBBING_VOICE": "nonsense"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert run.returncode == 0, run.stderr[-3000:]
    said = json.loads(run.stdout)
    assert said["sound"]
    assert said["task"]["status"] == "done"
    ledger = said["ledger"]
    assert ledger["segments"] == ledger["spoken"] >= 6
    assert 0 < ledger["stored_before_the_kill"] < ledger["segments"]
    assert ledger["spoken_again"] == 0
    assert ledger["attempts_to_speak"] >= 2
    assert Path(said["output"]).is_relative_to(tmp_path)
    assert Path(said["output"]).stat().st_size > 10_000
    assert "SIGKILL" in run.stderr
