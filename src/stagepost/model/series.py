"""Many jobs to enqueue at once: built beforehand, or built while they are sent to the database."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from itertools import count, repeat
from operator import attrgetter
from typing import Any

import msgspec

from stagepost.errors import ConfigurationError, PayloadError
from stagepost.model.identity import new_ids
from stagepost.model.job import NewJob

__all__ = ["Arguments", "JobSeries", "MixedJobs", "PatternedJob", "as_call"]

Arguments = tuple[Any, ...] | dict[str, Any]
"""The arguments of one call: a tuple by position, or a dict by name."""
PatternedJob = tuple[NewJob, str, str]
"""A pattern, and the id and payload in which a job differs from it."""
ID, PAYLOAD = attrgetter("id"), attrgetter("payload")
NO_ARGUMENTS: tuple[Any, ...] = ()
NO_KEYWORDS: Mapping[str, Any] = {}


class JobSeries:
    """Jobs of one task, without unique keys, that differ only in their ids and arguments.

    Arguments are checked and encoded on every iteration, so that the database can store jobs while others are being
    built. The ids are generated once and stay the same on every iteration.
    """

    def __init__(
        self,
        pattern: NewJob,
        arguments: Sequence[Arguments],
        encode: Callable[[tuple[Any, ...], Mapping[str, Any]], str],
    ) -> None:
        if not isinstance(arguments, Sequence):
            raise ConfigurationError(
                f"task {pattern.task_name}: arguments come from a {type(arguments).__name__}, whose code would run "
                f"while a transaction is open. Convert it first with `list(...)`."
            )
        self.pattern = pattern
        self.ids = new_ids(len(arguments))
        self._arguments = tuple(arguments)
        self._encode = encode

    def __len__(self) -> int:
        return len(self.ids)

    def __iter__(self) -> Iterator[NewJob]:
        return self.without(())

    def without(self, ids: Container[str]) -> Iterator[NewJob]:
        """Build all jobs except those with these ids."""
        for position, job_id in enumerate(self.ids):
            if job_id not in ids:
                yield msgspec.structs.replace(self.pattern, id=job_id, payload=self._payload(position))

    @property
    def plain_ids(self) -> list[str]:
        """Ids of the jobs without unique keys, which are all of them."""
        return self.ids

    @property
    def chosen_ids(self) -> list[str]:
        """Ids that the caller chose and that may already exist: none."""
        return []

    def plain(self) -> Iterator[PatternedJob]:
        """Encode the jobs one after another."""
        return zip(repeat(self.pattern), self.ids, map(self._payload, count()), strict=False)

    def _payload(self, position: int) -> str:
        arguments = self._arguments[position]
        try:
            if type(arguments) is tuple:  # a faster path for nearly every call
                return self._encode(arguments, NO_KEYWORDS)
            return self._encode(*as_call(arguments))
        except PayloadError as error:
            error.args = (f"arguments[{position}]: {error}",)
            raise


class MixedJobs:
    """Jobs that were built beforehand and may differ in everything."""

    def __init__(self, jobs: Sequence[NewJob]) -> None:
        self.ids = [job.id for job in jobs]
        self._jobs = jobs
        self._plain = [job for job in jobs if job.unique_key is None]

    def __len__(self) -> int:
        return len(self.ids)

    def without(self, ids: Container[str]) -> Iterator[NewJob]:
        """Yield all jobs except those with these ids."""
        return (job for job in self._jobs if job.id not in ids)

    @property
    def plain_ids(self) -> list[str]:
        """Ids of the jobs without unique keys."""
        return [job.id for job in self._plain]

    @property
    def chosen_ids(self) -> list[str]:
        """Ids that the caller chose and that may already exist."""
        return [job.id for job in self._jobs if job.has_chosen_id]

    def plain(self) -> Iterator[PatternedJob]:
        """Yield the jobs without unique keys, each as its own pattern."""
        return zip(self._plain, map(ID, self._plain), map(PAYLOAD, self._plain), strict=True)


def as_call(arguments: Arguments) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    """Split arguments into positional and named ones."""
    if isinstance(arguments, tuple):
        return arguments, NO_KEYWORDS
    if isinstance(arguments, dict):
        return NO_ARGUMENTS, arguments
    raise PayloadError(
        f"these are of type {type(arguments).__name__}. Pass a tuple of positional arguments, such as (1,), "
        f"or a dict of named arguments."
    )
