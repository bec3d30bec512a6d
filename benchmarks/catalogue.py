"""The contenders: each one's program, the service it needs and the packages of its environment."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["ENTRIES", "LIMITS", "Entry"]


@dataclass(frozen=True)
class Entry:
    """One contender."""

    name: str
    title: str
    program: str
    """Its module in benchmarks/contenders; also the name of its environment."""
    service: str
    requirements: tuple[str, ...] = ()
    """The packages of its environment; without any, it uses this checkout's environment."""
    python: tuple[int, int] = (3, 11)
    """The oldest Python version it supports."""
    broker: str = ""
    """The service that carries its jobs, in addition to the one that stores them."""
    variant: str = ""
    """Which of several configurations to run."""
    home: Path | None = None
    """Another checkout of Stagepost to run, with its own environment; None means this one."""
    is_own_program: bool = False
    """Whether to run that checkout's module in benchmarks/contenders instead of this one's."""


PSYCOPG = "psycopg[binary,pool]"
CELERY = ("celery[redis]",)
DRAMATIQ = ("dramatiq[redis,rabbitmq]",)
TASKIQ = ("taskiq[uv]", "taskiq-redis", "taskiq-aio-pika")

ENTRIES: tuple[Entry, ...] = (
    Entry("stagepost-postgres", "Stagepost on PostgreSQL", "stagepost", "postgres"),
    Entry("stagepost-sqlite", "Stagepost on SQLite", "stagepost", "sqlite"),
    Entry("stagepost-mariadb", "Stagepost on MariaDB", "stagepost", "mariadb"),
    Entry(
        "stagepost-rabbitmq",
        "Stagepost on PostgreSQL, through RabbitMQ",
        "stagepost",
        "postgres",
        broker="rabbitmq",
        variant="quorum",
    ),
    Entry(
        "stagepost-rabbitmq-tuned",
        "the same, `prefetch = 2000`",
        "stagepost",
        "postgres",
        broker="rabbitmq",
        variant="quorum-tuned",
    ),
    Entry(
        "stagepost-rabbitmq-classic",
        "the same, classic queue",
        "stagepost",
        "postgres",
        broker="rabbitmq",
        variant="classic",
    ),
    Entry("stagepost-threads", "Stagepost on PostgreSQL, `def` in threads", "stagepost", "postgres", variant="threads"),
    Entry(
        "stagepost-processes",
        "Stagepost on PostgreSQL, `def` in processes",
        "stagepost",
        "postgres",
        variant="processes",
    ),
    Entry(
        "stagepost-transactions",
        "Stagepost on PostgreSQL, completed in the handler's transaction",
        "stagepost",
        "postgres",
        variant="transactions",
    ),
    Entry("pgqueuer", "PgQueuer", "pgqueuer", "postgres", ("pgqueuer[asyncpg,cli]", PSYCOPG)),
    Entry("procrastinate", "Procrastinate", "procrastinate", "postgres", ("procrastinate", PSYCOPG)),
    Entry("chancy", "Chancy", "chancy", "postgres", ("chancy[cli]", PSYCOPG)),
    Entry("oban", "Oban for Python", "oban", "postgres", ("oban", PSYCOPG), python=(3, 12)),
    Entry("dbos", "DBOS", "dbos", "postgres", ("dbos",)),
    Entry("celery-redis", "Celery on Redis", "celery", "redis", CELERY),
    Entry("celery-rabbitmq", "Celery on RabbitMQ", "celery", "rabbitmq", CELERY),
    Entry("celery-rabbitmq-threads", "Celery on RabbitMQ, threads", "celery", "rabbitmq", CELERY, variant="threads"),
    Entry("dramatiq-redis", "Dramatiq on Redis", "dramatiq", "redis", DRAMATIQ),
    Entry("dramatiq-rabbitmq", "Dramatiq on RabbitMQ", "dramatiq", "rabbitmq", DRAMATIQ),
    Entry("taskiq-redis", "taskiq on Redis", "taskiq", "redis", TASKIQ),
    Entry("taskiq-rabbitmq", "taskiq on RabbitMQ", "taskiq", "rabbitmq", TASKIQ),
    Entry("huey", "huey on SQLite", "huey", "sqlite", ("huey",)),
)

LIMITS: tuple[Entry, ...] = (
    Entry("limit-postgres", "limit: bare PostgreSQL", "limits", "postgres"),
    Entry("limit-sqlite", "limit: bare SQLite", "limits", "sqlite"),
    Entry("limit-rabbitmq", "limit: bare RabbitMQ, classic queue", "limits", "rabbitmq", variant="classic"),
    Entry("limit-rabbitmq-quorum", "limit: bare RabbitMQ, quorum queue", "limits", "rabbitmq", variant="quorum"),
)
"""Not job systems, but the same statements or messages without anything else."""
