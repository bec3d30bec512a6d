"""`./dev test` and `./dev prove`: set up services, run pieces, report."""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from collections.abc import Sequence

from tests.depth import VARIABLE
from tests.runner import pieces, pythons
from tests.runner.changed import affected_tests
from tests.runner.piece import STATE, Piece
from tests.runner.report import rows_of, table_of, totals, write_json
from tests.runner.running import run_pieces
from tests.runner.screen import Screen
from tests.runner.servers import shared_servers
from tests.runner.stamp import Tree, changed_files, read_stamp, write_stamp
from tests.services.__main__ import main as provide_services

SERVICES = ("postgres", "mariadb", "rabbitmq", "spin", "librabbitmq", "pgbouncer", "faketime")
FAULT_SEED = "20260101"
PROOF = STATE / "proof.json"


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    command, *rest = given or ["test"]
    return {"test": test, "prove": prove, "check": check}[command](rest)


def check(_arguments: Sequence[str]) -> int:
    """Run only the static checks."""
    screen, started = Screen(), time.monotonic()
    runs = run_pieces(pieces.CHECKS, at_once=pieces.AT_ONCE, screen=screen)
    screen.say(totals(runs, seconds=time.monotonic() - started))
    return 0 if all(run.passed for run in runs) else 1


def test(arguments: Sequence[str]) -> int:
    """Run the checks and the tests that decide whether a change is right; with arguments for pytest, those tests."""
    parser = argparse.ArgumentParser(prog="./dev test", description=test.__doc__)
    parser.add_argument("--no-install", action="store_true", help="never install servers with apt-get")
    parser.add_argument("--last", action="store_true", help="say which commit passed last, and run nothing")
    parser.add_argument(
        "--changed",
        nargs="?",
        const="HEAD",
        metavar="COMMIT",
        help="run the checks and the tests that changes since COMMIT can affect (default: uncommitted changes)",
    )
    options, chosen = parser.parse_known_args(arguments)
    screen = Screen()
    if options.last:
        screen.say(read_stamp())
        return 0
    if options.changed is not None:
        chosen = [*chosen, *affected_tests(changed_files(options.changed))]
        screen.say(f"Affected: {' '.join(chosen) or 'no tests'}")
        wanted = [*([Piece("affected", pytest=tuple(chosen))] if chosen else []), *pieces.CHECKS]
    else:
        wanted = [Piece("chosen", pytest=tuple(chosen)), *pieces.CHECKS] if chosen else list(pieces.TEST)
    is_whole = not chosen and options.changed is None
    if not _have_services(no_install=options.no_install):
        return 1
    tree, started = Tree.now(), time.monotonic()
    with shared_servers() as variables:
        runs = run_pieces(wanted, at_once=pieces.AT_ONCE, screen=screen, variables=variables)
    seconds = time.monotonic() - started
    passed = all(run.passed for run in runs)
    screen.say(totals(runs, seconds=seconds))
    if passed and is_whole:
        screen.say(write_stamp(tree, seconds=seconds, tests=sum(len(run.finished) for run in runs)))
    return 0 if passed else 1


def prove(arguments: Sequence[str]) -> int:
    """Run everything: all that `./dev test` runs and all that takes too long for it."""
    parser = argparse.ArgumentParser(prog="./dev prove", description=prove.__doc__)
    known = [*pieces.PARTS, "pythons"]
    parser.add_argument("parts", nargs="*", metavar="part", help=f"any of {', '.join(known)}; all if none is given")
    parser.add_argument("--nightly", action="store_true", help="larger sizes, longer searches, random seeds")
    parser.add_argument("--seed", type=int, help="repeat a run with this seed")
    parser.add_argument("-k", dest="keyword", metavar="EXPRESSION", help="only tests that match, as for pytest")
    parser.add_argument("--no-install", action="store_true", help="never install servers with apt-get")
    options = parser.parse_args(arguments)
    if unknown := [part for part in options.parts if part not in known]:
        parser.error(f"there is no part {', '.join(unknown)}; there are {', '.join(known)}")
    if not _have_services(no_install=options.no_install):
        return 1
    screen = Screen()
    seed = str(options.seed or (random.SystemRandom().randrange(2**31) if options.nightly else FAULT_SEED))
    chosen = options.parts or known
    wanted, parts = _parts(chosen, nightly=options.nightly, seed=seed, keyword=options.keyword)
    if "pythons" in chosen:
        found = pythons.pieces(screen)
        wanted, parts = [*wanted, *found], parts | {piece.name: "pythons" for piece in found}
    tree, started = Tree.now(), time.monotonic()
    with shared_servers() as variables:
        runs = run_pieces(wanted, at_once=pieces.AT_ONCE, screen=screen, variables=variables)
    seconds = time.monotonic() - started
    rows = rows_of(runs, parts, seed=seed)
    STATE.mkdir(exist_ok=True)
    write_json(PROOF, rows, commit=tree and tree.commit, clean=tree and not tree.changes, seconds=round(seconds, 1))
    screen.say(f"\n{table_of(rows)}\n{totals(runs, seconds=seconds)}\nThe table as JSON: {PROOF}")
    return 0 if all(run.passed for run in runs) else 1


def _parts(
    chosen: Sequence[str], *, nightly: bool, seed: str, keyword: str | None
) -> tuple[list[Piece], dict[str, str]]:
    """The pieces of the chosen parts, and the part of each by its name."""
    options = ("-k", keyword) if keyword else ()
    if nightly:
        options = (*options, f"--hypothesis-seed={seed}")
    environment = (("FAULT_SEED", seed), (VARIABLE, "night" if nightly else "proof"))
    wanted: list[Piece] = []
    parts: dict[str, str] = {}
    for part in chosen:
        for number, paths in enumerate(pieces.PARTS.get(part, ())):
            name = f"prove-{part}" + (f"-{number + 1}" if number else "")
            wanted.append(Piece(name, pytest=(*paths, *options), environment=environment))
            parts[name] = part
    return wanted, parts


def _have_services(*, no_install: bool) -> bool:
    if no_install:
        os.environ["STAGEPOST_TEST_NO_INSTALL"] = "1"
    return provide_services(SERVICES) == 0


if __name__ == "__main__":
    sys.exit(main())
