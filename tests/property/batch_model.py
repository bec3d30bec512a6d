"""Batches and gates in plain Python, on top of the model of jobs: what every operation on them must do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from stagepost.errors import BatchClosed
from stagepost.model.batch import Cursor, Item, NewBatch, item_id
from stagepost.model.job import NewJob
from tests.property.model import Model, ModelJob
from tests.property.world import TABLES, Tables

BATCH = (
    "batch_key, id, state, gate, on_failed, position, cursor_key, outcome, cancelled_at, created_at, sealed_at, done_at"
)
GATE = "name, unfinished, openings, opened_at"
FAILED = ("dead_letter", "failed")


@dataclass
class ModelBatch:
    """One row; attributes are called as the columns are."""

    batch_key: str
    id: str
    gate: str | None
    on_failed: str
    created_at: int
    state: str = "open"
    position: int = 0
    cursor_key: str | None = None
    outcome: str | None = None
    cancelled_at: int | None = None
    sealed_at: int | None = None
    done_at: int | None = None
    removed: Counter[str] = field(default_factory=Counter)
    """How many items were discarded or pruned, by the state that they had ended in."""

    @property
    def completion_id(self) -> str:
        """The id of the job that says that it is done."""
        return item_id(self.id, "\0done")


@dataclass
class ModelGate:
    """One row; attributes are called as the columns are."""

    name: str
    unfinished: int = 0
    openings: int = 0
    opened_at: int | None = None


@dataclass
class BatchModel(Model):
    """Dictionaries for two more tables."""

    batches: dict[str, ModelBatch] = field(default_factory=dict)
    gates: dict[str, ModelGate] = field(default_factory=dict)
    completion: NewJob | None = None
    """What is enqueued for every batch that is done, under an id of the batch's own."""

    def items(self, batch: ModelBatch) -> list[ModelJob]:
        """All items, live or ended, by their ids."""
        jobs = [*self.live.values(), *self.ended.values()]
        return sorted((job for job in jobs if job.batch_id == batch.id), key=lambda job: job.id)

    def counts_of(self, batch: ModelBatch) -> dict[str, int]:
        """How many items there are by state, and were when they were removed."""
        return dict(batch.removed + Counter(job.state for job in self.items(batch)))

    # ---- producers

    def open_batch(self, new: NewBatch) -> ModelBatch:
        if new.key not in self.batches:
            self.batches[new.key] = ModelBatch(new.key, new.id, new.gate, str(new.on_failed), self.now)
            if new.gate is not None:
                self.gates.setdefault(new.gate, ModelGate(new.gate)).unfinished += 1
        return self.batches[new.key]

    def add(self, new: NewBatch, items: Sequence[Item], cursor: Cursor | None) -> tuple[int, Cursor]:
        """Of items that are in, nothing happens; a batch that is closed refuses others."""
        known = self.batches.get(new.key)
        wanted = [item.in_batch(known.id if known else new.id) for item in items]
        missing = {job.id: job for job in wanted if job.id not in self.live and job.id not in self.ended}
        if missing and known is not None and (known.state != "open" or known.cancelled_at is not None):
            raise BatchClosed(known.batch_key, known.state)
        batch = self.open_batch(new)
        self.enqueue(list(missing.values()))
        moved = cursor or Cursor(batch.position + len(missing), items[-1].key if missing else None)
        if moved.position > batch.position:
            batch.position, batch.cursor_key = moved.position, moved.key
        return len(missing), Cursor(batch.position, batch.cursor_key)

    def seal(self, new: NewBatch) -> str:
        batch = self.open_batch(new)
        self._seal(batch)
        return self.conclude(batch)

    def _seal(self, batch: ModelBatch) -> None:
        if batch.state == "open":
            batch.state, batch.sealed_at = "sealed", self.now

    # ---- conclusions

    def conclude(self, batch: ModelBatch) -> str:
        """It is done once: sealed, no item lives, and none failed if that holds it."""
        states = self.counts_of(batch)
        failed = sum(states.get(state, 0) for state in FAILED)
        is_cancelled = batch.cancelled_at is not None
        holds = batch.on_failed == "hold" and failed and not is_cancelled
        if batch.state == "sealed" and not holds and not any(job.id in self.live for job in self.items(batch)):
            batch.state, batch.done_at = "done", self.now
            batch.outcome = "cancelled" if is_cancelled else self._outcome(states)
            if self.completion is not None:
                self.enqueue([_with_id(self.completion, batch.completion_id)])
            if batch.gate is not None:
                self._open_gate(self.gates[batch.gate])
        return batch.state

    def _outcome(self, states: dict[str, int]) -> str:
        if not any(states.get(state) for state in (*FAILED, "cancelled")):
            return "completed"
        return "completed_with_errors" if states.get("completed") or states.get("waived") else "failed"

    def _open_gate(self, gate: ModelGate) -> None:
        gate.unfinished -= 1
        if not gate.unfinished:
            gate.openings, gate.opened_at = gate.openings + 1, self.now

    def idle(self) -> list[str]:
        """Sealed batches without live items."""
        return sorted(
            batch.id
            for batch in self.batches.values()
            if batch.state == "sealed" and not any(job.id in self.live for job in self.items(batch))
        )

    def cancelled(self) -> list[str]:
        """Cancelled batches that are not done."""
        unfinished = [batch for batch in self.batches.values() if batch.state != "done"]
        return sorted(batch.id for batch in unfinished if batch.cancelled_at is not None)

    # ---- operators

    def failed_items(self, batch: ModelBatch, keys: list[str] | None, after: str, most: int) -> list[str]:
        failed = [job for job in self.items(batch) if job.state in FAILED]
        if keys is not None:
            return [job.id for job in failed if job.item_key in keys]
        return [job.id for job in failed if job.id > after][:most]

    def retry_failed(self, batch: ModelBatch, actor: str, **which: Any) -> list[str]:
        chosen = self.failed_items(batch, **which)
        self.restart(chosen, actor)
        return chosen

    def waive(self, batch: ModelBatch, actor: str, why: str, **which: Any) -> list[str]:
        chosen = self.failed_items(batch, **which)
        for job_id in chosen:
            self.ended[job_id].state = "waived"
            self.audit.append((actor, "waive", job_id, why))
        self.conclude(batch)
        return chosen

    def cancel_batch(self, batch: ModelBatch, actor: str) -> str:
        if batch.state == "done" or batch.cancelled_at is not None:
            return batch.state
        batch.cancelled_at = self.now
        self._seal(batch)
        self.audit.append((actor, "cancel", batch.batch_key, None))
        return self.conclude(batch)

    def cancel_items(self, batch: ModelBatch, most: int) -> str | None:
        """Running items are asked to stop, others end; says where to go on."""
        live = [job for job in self.items(batch) if job.id in self.live]
        for job in live:
            if job.state == "running" and job.cancel_requested_at is None:
                job.cancel_requested_at = job.updated_at = self.now
        waiting = [job for job in live if job.state != "running"][:most]
        for job in waiting:
            self._end(job, "cancelled", error="its batch was cancelled")
        self.conclude(batch)
        return waiting[-1].id if len(waiting) == most else None

    # ---- upkeep

    def is_prunable(self, job: ModelJob) -> bool:
        """Items stay while their batch is unfinished."""
        return all(batch.id != job.batch_id or batch.state == "done" for batch in self.batches.values())

    def _forget(self, job_ids: Iterable[str]) -> None:
        """A batch counts on what is removed."""
        job_ids = list(job_ids)
        for batch in self.batches.values():
            batch.removed.update(job.state for job in self.items(batch) if job.id in job_ids)
        super()._forget(job_ids)

    def prune_batches(self, older_us: int) -> int:
        old = [
            batch.batch_key
            for batch in self.batches.values()
            if batch.state == "done" and (batch.done_at or 0) < self.now - older_us and not self.items(batch)
        ]
        for key in old:
            del self.batches[key]
        return len(old)


def _with_id(job: NewJob, job_id: str) -> NewJob:
    return NewJob(**{name: getattr(job, name) for name in job.__struct_fields__} | {"id": job_id})


def _columns(rows: Iterable[Any], columns: str) -> list[tuple[Any, ...]]:
    return [tuple(getattr(row, name) for name in columns.split(", ")) for row in rows]


BATCH_TABLES: Tables = TABLES | {
    "stagepost_batch": (BATCH, lambda model: _columns(model.batches.values(), BATCH)),
    "stagepost_gate": (GATE, lambda model: _columns(model.gates.values(), GATE)),
}
