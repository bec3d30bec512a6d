"""Operations that check whether the database answers, and whether its settings keep commits through a crash."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from stagepost.database.statement import Statement, Statements, query

__all__ = ["durability_warnings", "network_file_system", "ping", "warnings_of"]


@query
def ping() -> Statements[int]:
    """Read the database's clock, in microseconds since 1970, to see whether it answers."""
    [(now,)] = yield Statement("read_clock")
    return int(now)


@query
def durability_warnings() -> Statements[list[str]]:
    """Describe each setting that lets this database lose committed work, and its remedy; empty if there is none."""
    rows = yield Statement("durability_settings")
    volatile = yield Statement("volatile_tables")
    return warnings_of(
        {name: str(value).lower() if name != "file" else value for name, value in rows},
        volatile_tables=[f"{table} ({kind})" for table, kind in volatile],
    )


@dataclass(frozen=True)
class Weakness:
    """A setting, its safe values, and the warning about any other value."""

    setting: str
    sound: frozenset[str]
    loss: str
    remedy: str


def _weakness(setting: str, sound: str, loss: str, remedy: str) -> Weakness:
    return Weakness(setting, frozenset(sound.split()), loss, remedy)


WEAKNESSES = (
    _weakness(
        "synchronous_commit",
        "on local remote_write remote_apply",
        "commits are confirmed before they are on disk; a crash of the server loses the last ones.",
        "Set `synchronous_commit = on` in postgresql.conf, or with `alter role … set synchronous_commit = on`.",
    ),
    _weakness(
        "fsync",
        "on",
        "nothing is forced to disk; a crash of the machine can damage the whole cluster.",
        "Set `fsync = on` in postgresql.conf and reload.",
    ),
    _weakness(
        "full_page_writes",
        "on",
        "a page half written in a crash cannot be restored; jobs on it are lost.",
        "Set `full_page_writes = on` in postgresql.conf and reload.",
    ),
    _weakness(
        "pg_is_in_recovery",
        "false",
        "this server is a standby: nothing can be enqueued or claimed here.",
        "Use the address of the primary, for example with `target_session_attrs=read-write` in the URL.",
    ),
    _weakness(
        "innodb_flush_log_at_trx_commit",
        "1 3",  # 3: MariaDB syncs at prepare and at commit
        "commits are confirmed before they are on disk; a crash loses up to about a second of them.",
        "Set `innodb_flush_log_at_trx_commit = 1` in the server's configuration or with `set global`.",
    ),
    _weakness(
        "innodb_doublewrite",
        "on 1 fast detect_and_recover",
        "a page half written in a crash cannot be restored; jobs on it are lost.",
        "Set `innodb_doublewrite = on` in the server's configuration and restart it.",
    ),
    _weakness(
        "sync_binlog",
        "1",
        "the binary log is on but not synced at every commit; after a crash, commits that are missing there are "
        "rolled back or never reach the replicas.",
        "Set `sync_binlog = 1` in the server's configuration or with `set global`.",
    ),
    _weakness(
        "wsrep_on",
        "off 0",
        "this is a Galera cluster, where a commit on one node can conflict with another node's and leases are not "
        "exclusive between nodes.",
        "Send all of Stagepost's connections to one node; writing to several is not supported.",
    ),
    _weakness(
        "synchronous",
        "2 3",  # full, extra
        "commits are confirmed before they are on disk; a power cut loses the last ones.",
        "Run `pragma synchronous = full` on every connection that writes to this file.",
    ),
    _weakness(
        "journal_mode",
        "wal",
        "readers and writers block one another, and with `memory` or `off` a crash damages the file.",
        "Run `pragma journal_mode = wal` once on this file.",
    ),
)


def warnings_of(
    settings: Mapping[str, str],
    *,
    volatile_tables: Iterable[str] = (),
    file_system: Callable[[str], str | None] | None = None,
) -> list[str]:
    """Check the settings of any database by their names.

    `file_system` returns the network file system that holds a file, or None.
    """
    if settings.get("file") == "":
        return ["file is empty: this SQLite database is in memory, all jobs end with the process. Name a file."]
    given = dict(settings)
    if given.get("log_bin") not in {"on", "1"}:
        given.pop("sync_binlog", None)
    warnings = [
        f"{weak.setting} is {given[weak.setting]}: {weak.loss} {weak.remedy}"
        for weak in WEAKNESSES
        if weak.setting in given and given[weak.setting] not in weak.sound
    ]
    if tables := ", ".join(volatile_tables):
        warnings.append(
            f"{tables}: the jobs in such tables are lost when the server crashes. "
            f"Use `alter table … set logged` (PostgreSQL) or `alter table … engine = innodb` (MySQL, MariaDB)."
        )
    path = settings.get("file")
    if path and (kind := (file_system or network_file_system)(path)):
        warnings.append(
            f"file is {path}, on a network file system ({kind}), where locks and syncs are unreliable: jobs can be "
            f"lost or run twice and the file damaged. Move it to a local disk, or use PostgreSQL or MySQL."
        )
    return warnings


MOUNTS = Path("/proc/self/mounts")
NETWORK_FILE_SYSTEMS = frozenset(
    {"9p", "afs", "ceph", "cifs", "glusterfs", "lustre", "nfs", "nfs4", "smb3", "smbfs", "vboxsf", "virtiofs"}
    | {"fuse.glusterfs", "fuse.rclone", "fuse.s3fs", "fuse.sshfs"}
)


def network_file_system(path: str, *, mounts: Path = MOUNTS) -> str | None:
    """Name the network file system that holds a file. None if it is local, or if the mounts cannot be read."""
    try:
        fields = [line.split() for line in mounts.read_text(encoding="utf-8").splitlines()]
        place = Path(path).resolve()
    except OSError:
        return None
    around = [(len(at), kind) for _, at, kind, *_ in fields if place.is_relative_to(at.replace("\\040", " "))]
    kind = max(around, default=(0, ""))[1]
    return kind if kind in NETWORK_FILE_SYSTEMS else None
