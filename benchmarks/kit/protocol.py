"""The commands that every contender's program understands; each prints one line of JSON.

    facts                                        versions and settings
    prepare                                      tables or queues in an empty database
    enqueue-one N | enqueue-bulk N [--unsent]    ask for jobs; where a broker carries them, until it has them
    drain N --processes P [--stop-after M] [--seconds S]
    latency N | sleep N --concurrency C | idle S
    fill-history N                               multiply the ended jobs
    enqueue-keyed N --keys K                     ask for jobs of which at most one per key may run
    mixed LONG QUICK --slots S --limit SECONDS   quick jobs behind long ones, two workers
    rated N --slots S --seconds S --limit SECONDS
    unknown N --singly M --plain P --slots S --limit SECONDS
    enqueue-unknown N                            ask for jobs of a task that no worker knows

The address of the database is in BENCH_URL, the server's process in BENCH_SERVER_PID; those of a broker beside it in
BENCH_BROKER_URL and BENCH_BROKER_PID. BENCH_VARIANT says which of several ways to run the contender.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.kit import flow, stages
from benchmarks.kit.contender import Cannot, Contender
from benchmarks.kit.processes import CrewFailed

__all__ = ["BROKER_URL_VARIABLE", "BROKER_VARIABLE", "SERVER_VARIABLE", "URL_VARIABLE", "VARIANT_VARIABLE", "main"]

URL_VARIABLE = "BENCH_URL"
SERVER_VARIABLE = "BENCH_SERVER_PID"
BROKER_URL_VARIABLE = "BENCH_BROKER_URL"
BROKER_VARIABLE = "BENCH_BROKER_PID"
VARIANT_VARIABLE = "BENCH_VARIANT"


def main(kind: type[Contender], arguments: Sequence[str] | None = None) -> None:
    """Run one command; what goes wrong is printed as JSON too, and the exit code is 1."""
    logging.basicConfig(level=logging.WARNING)
    options = _parser().parse_args(arguments)
    contender = kind(os.environ.get(URL_VARIABLE, ""))
    try:
        facts = _run(contender, options)
    except Cannot as reason:
        facts = {"cannot": str(reason)}
    except CrewFailed as error:
        facts = {"error": str(error)}
    # Through the descriptor: libraries under test write to sys.stdout as they like.
    os.write(1, (json.dumps(facts) + "\n").encode())
    sys.exit(1 if "error" in facts else 0)


def _run(contender: Contender, options: argparse.Namespace) -> dict[str, Any]:
    match options.command:
        case "facts":
            return {"versions": contender.versions(), "settings": dict(contender.settings())}
        case "prepare":
            contender.prepare()
            return {}
        case _:
            contender.open()
            try:
                with tempfile.TemporaryDirectory(prefix="stagepost-bench-") as directory:
                    pids = _pids(SERVER_VARIABLE), _pids(BROKER_VARIABLE)
                    return _stage(stages.Bench(contender, Path(directory), *pids), options)
            finally:
                contender.close()


def _pids(name: str) -> list[int]:
    return [int(pid) for pid in os.environ.get(name, "").split()]


def _stage(bench: stages.Bench, options: argparse.Namespace) -> dict[str, Any]:
    match options.command:
        case "enqueue-one":
            return stages.enqueue_each(bench, options.count)
        case "enqueue-bulk":
            return stages.enqueue_many(bench, options.count, is_sent=not options.unsent)
        case "drain":
            limits = {"stop_after": options.stop_after, "seconds": options.seconds}
            return stages.drain(bench, options.count, processes=options.processes, **limits)
        case "latency":
            return stages.latency(bench, options.count)
        case "sleep":
            return stages.nap(bench, options.count, concurrency=options.concurrency)
        case "idle":
            return stages.idle(bench, options.count)
        case "enqueue-keyed":
            return stages.enqueue_keyed(bench, options.count, keys=options.keys)
        case "mixed" | "rated" | "unknown":
            return _flow_stage(bench, options)
        case "enqueue-unknown":
            bench.contender.enqueue_unknown(options.count)
            return {"count": options.count}
        case _:
            bench.contender.fill_history(options.count)
            return {"rows": bench.contender.ended()}


def _flow_stage(bench: stages.Bench, options: argparse.Namespace) -> dict[str, Any]:
    slots, limit = options.slots, options.limit
    match options.command:
        case "mixed":
            return flow.mixed(bench, options.count, options.quick, slots=slots, limit=limit)
        case "rated":
            return flow.rated(bench, options.count, slots=slots, seconds=options.seconds, limit=limit)
        case _:
            more = {"singly": options.singly, "plain": options.plain}
            return flow.unknown(bench, options.count, **more, slots=slots, limit=limit)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("facts")
    commands.add_parser("prepare")
    for name in (
        "enqueue-one", "enqueue-bulk", "enqueue-keyed", "enqueue-unknown", "drain", "latency", "sleep", "idle",
        "fill-history", "mixed", "rated", "unknown",
    ):  # fmt: skip
        command = commands.add_parser(name)
        command.add_argument("count", type=int)
        if name == "enqueue-bulk":
            command.add_argument("--unsent", action="store_true")
        if name == "drain":
            command.add_argument("--processes", type=int, default=1)
            command.add_argument("--stop-after", type=int)
            command.add_argument("--seconds", type=float)
        if name == "sleep":
            command.add_argument("--concurrency", type=int, default=100)
        if name == "enqueue-keyed":
            command.add_argument("--keys", type=int, required=True)
        if name in {"mixed", "rated", "unknown"}:
            _add_flow_options(command, name)
    return parser


def _add_flow_options(command: argparse.ArgumentParser, name: str) -> None:
    command.add_argument("--slots", type=int, required=True)
    command.add_argument("--limit", type=float, required=True)
    if name == "mixed":
        command.add_argument("quick", type=int)
    if name == "rated":
        command.add_argument("--seconds", type=float, required=True)
    if name == "unknown":
        command.add_argument("--singly", type=int, required=True)
        command.add_argument("--plain", type=int, required=True)
