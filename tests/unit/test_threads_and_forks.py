"""Threads of our own classes leave the names of `threading.Thread` alone, so that forked children can clean up."""

from __future__ import annotations

import threading

from stagepost.worker.lease_keeper import LeaseKeeper
from stagepost.worker.process_main import ReplySender
from stagepost.worker.worker_thread import WorkerThread


def test_no_thread_overrides_a_private_method() -> None:
    private = {name for name in vars(threading.Thread) if name.startswith("_") and not name.startswith("__")}

    for kind in (LeaseKeeper, ReplySender, WorkerThread):
        assert not private & vars(kind).keys(), kind
