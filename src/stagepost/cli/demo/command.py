"""`stagepost demo`: explains the demo, runs it and prints the audit."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import click

from stagepost.cli.demo.ledger import Audit, Ledger
from stagepost.cli.demo.plan import FEWEST_ITEMS, KILL_AT, Kind, Plan
from stagepost.cli.demo.show import WORKERS, Show
from stagepost.cli.errors import ExitCode
from stagepost.cli.invocation import Invocation
from stagepost.cli.layout import Section
from stagepost.cli.options import Command
from stagepost.cli.render import Output
from stagepost.config.urls import masked
from stagepost.model.identity import new_id

__all__ = ["demo"]


@click.command(cls=Command, short_help="Run a demo: many jobs, a killed worker, an audit.")
@click.option(
    "--items", type=click.IntRange(min=FEWEST_ITEMS), default=50_000, show_default=True, help="Number of jobs."
)
@click.option("--quiet", is_flag=True, help="Show only the audit.")
@click.option("--audit", "run_to_audit", metavar="RUN", help="Only audit an earlier run, in the database it used.")
@click.option(
    "--in-my-database", is_flag=True, help="Use the database in your settings; use one that is meant for experiments."
)
@click.option("--lease", type=click.FloatRange(min=0.5), default=3.0, hidden=True)
@click.pass_obj
def demo(
    invocation: Invocation,
    *,
    items: int,
    quiet: bool,
    run_to_audit: str | None,
    in_my_database: bool,
    lease: float,
) -> None:
    """Run many jobs with two workers, kill one of them, and audit the result.

    The demo uses a temporary SQLite file. With --database or --in-my-database it uses that database instead: it adds
    two tables and a queue, and leaves them for you to inspect.
    """
    invocation.is_quiet = quiet
    if run_to_audit is not None:
        _audit_again(invocation, run_to_audit)
        return
    output, plan = invocation.output, Plan(items)
    folder = Path(tempfile.mkdtemp(prefix="stagepost-demo-"))
    given = invocation.settings.database_url if in_my_database else invocation.database
    url = given or f"sqlite:///{folder / 'demo.db'}"
    output.remark(introduction(plan, url, lease=lease))
    show = Show(url, plan, run=f"demo-{new_id()[-8:]}", folder=folder, lease=lease, output=output)
    try:
        audit = show.play()
    finally:
        show.close()
    _answer(output, audit, run=show.run, url=url, seconds=show.seconds)
    output.remark(what_next(show, audit))
    if not audit.is_sound:
        sys.exit(ExitCode.FAILED)


def introduction(plan: Plan, url: str, *, lease: float) -> str:
    """Explain what the demo does to someone who is new to Stagepost."""
    return f"""\
This demo shows that no work is lost and nothing is done twice, even if a worker dies.

  1. It puts {plan.items:,} jobs into a database: {masked(url)}
  2. {WORKERS} worker processes run them. Most jobs write a line into a ledger and complete in the same
     transaction. {plan.counts[Kind.STORM]:,} fail once and are tried again. {plan.dead} can never succeed.
  3. When {KILL_AT:.0%} are done, one worker is killed with SIGKILL, which looks like a crash. Another takes its place.
     The jobs it was running become available again {lease:g} seconds after its last sign of life.
  4. At the end, SQL queries count the rows: every job must have ended, and every line must exist exactly once.
"""


def what_next(show: Show, audit: Audit) -> str:
    """Point to the database and the logs, and suggest commands to try."""
    verdict = "Nothing was lost, and nothing was done twice." if audit.is_sound else "THE TOTALS ARE WRONG; see above."
    rate = f"{audit.items:,} jobs in {show.seconds:.1f} s, with one worker killed along the way."
    return f"""
{verdict} {rate}

The database is {masked(show.url)}, the workers' logs are in {show.folder}.
To look around:

  export STAGEPOST_DATABASE_URL={masked(show.url)}
  stagepost dead list                         jobs that failed permanently, and why
  stagepost jobs list --limit 5               a few of the jobs; `stagepost jobs show` shows one
  stagepost demo --audit {show.run}        count again; try it after changing stagepost_demo_ledger
  stagepost worker --help                     run your own jobs\
"""


def _audit_again(invocation: Invocation, run: str) -> None:
    audit = Ledger(invocation.store, run).audit()
    _answer(invocation.output, audit, run=run, url=invocation.settings.database_url, seconds=None)
    if not audit.is_sound:
        invocation.output.warn("stagepost: The totals are wrong.")
        sys.exit(ExitCode.FAILED)


def _answer(output: Output, audit: Audit, *, run: str, url: str, seconds: float | None) -> None:
    document: dict[str, Any] = {
        "sound": audit.is_sound,
        "run": run,
        "database": masked(url),
        "seconds": None if seconds is None else round(seconds, 1),
        "jobs": audit.items,
        "completed": audit.done,
        "dead_letters": audit.dead,
        "dead_letters_planned": audit.dead_planned,
        "lost": audit.lost,
        "effects": audit.effects,
        "effects_planned": audit.effects_planned,
        "effects_applied_twice": audit.twice,
        "effects_missing": audit.missing,
        "effects_without_completion": audit.unearned,
        "attempts": audit.attempts,
        "failed_attempts": audit.failed_attempts,
        "rescued": audit.rescued,
    }
    output.result(document, lambda: output.table(_audit_table(audit)))


def _audit_table(audit: Audit) -> Section:
    return Section(
        columns=("counted in the tables", "number", "must be"),
        rows=[
            ("jobs enqueued", audit.items, None),
            ("completed", audit.done, audit.items - audit.dead_planned),
            ("dead letters", audit.dead, audit.dead_planned),
            ("lost", audit.lost, 0),
            ("lines in the ledger", audit.effects, audit.effects_planned),
            ("lines written twice", audit.twice, 0),
            ("lines missing", audit.missing, 0),
            ("lines by attempts that did not complete", audit.unearned, 0),
            ("attempts", audit.attempts, None),
            ("attempts that failed", audit.failed_attempts, None),
            ("attempts whose worker died", audit.rescued, None),
        ],
        numbers=frozenset({"number", "must be"}),
    )
