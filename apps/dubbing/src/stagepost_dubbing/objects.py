"""Stores videos, sounds and texts by key: in a directory, in memory or in S3."""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)
from obstore.store import LocalStore, MemoryStore, S3Store

from stagepost import Permanent, Retryable
from stagepost.errors import ConfigurationError
from stagepost_dubbing.keys import checked_key

__all__ = ["ObjectDiffers", "Objects"]

IN_PARTS = 64 * 1024 * 1024
"""Objects from this size on are uploaded in parts, which no server can make conditional."""
CHUNK = 8 * 1024 * 1024
RETRY: Any = {"max_retries": 1000, "retry_timeout": timedelta(seconds=30)}
"""Retry for half a minute. Longer outages are left to the job's own retries, which survive a crash."""
S3_OPTIONS = frozenset({"endpoint", "region", "allow_http", "virtual_hosted"})

LONGEST_REASON = 300
STATUS = re.compile(r"status code: (\d{3} [A-Za-z -]+)")
SAID = re.compile(r"<(?:Code|Message)>([^<]+)<")
"""Matches the code and message in the body of an S3 error."""
NO_ANSWER = re.compile(r"Error performing \w+ (\S+) in .+? - (.+)")

_memories: dict[str, MemoryStore] = {}
_memories_lock = threading.Lock()


class ObjectDiffers(Permanent):
    """A different object with that key already exists."""

    def __init__(self, key: str) -> None:
        super().__init__(f"object {key} already exists with different content and is not overwritten. Use another id.")
        self.key = key


class Objects:
    """A store of objects that checks keys and writes each object completely or not at all."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._store: Any = _store_at(url)
        parts = urlsplit(url)
        self._directory = Path(unquote(parts.path)) if parts.scheme == "file" else None

    def has(self, key: str) -> bool:
        """Return whether the object exists."""
        with _explained("look for", key):
            try:
                obstore.head(self._store, checked_key(key))
            except FileNotFoundError:
                return False
        return True

    def read(self, key: str) -> bytes:
        """Read a small object into memory."""
        with _explained("read", key):
            return bytes(obstore.get(self._store, checked_key(key)).bytes())

    def lend(self, key: str, copy: Path) -> Path:
        """Return a read-only file with the object: its own file in a directory store, otherwise a copy."""
        if self._directory is not None:
            own = self._directory / checked_key(key)
            if own.is_file() and str(own).isprintable():  # ffmpeg gets only printable names
                return own
        return self.fetch(key, copy)

    def fetch(self, key: str, file: Path) -> Path:
        """Write an object of any size to a file."""
        with _explained("read", key):
            found = obstore.get(self._store, checked_key(key))
        # Opened outside, because a problem with the file is not one with the object.
        with file.open("wb") as target, _explained("read", key):
            for chunk in found.stream(min_chunk_size=CHUNK):
                target.write(chunk)
        return file

    def create(self, key: str, content: bytes | Path) -> bool:
        """Store a new object; returns False if the same one exists, and never overwrites a different one."""
        with _explained("write", key):
            if _size(content) > IN_PARTS:
                if not self.has(key):
                    obstore.put(self._store, checked_key(key), content)
                    return True
            else:
                try:
                    obstore.put(self._store, checked_key(key), content, mode="create", use_multipart=False)
                except (AlreadyExistsError, PreconditionError):
                    pass
                else:
                    return True
        if self._digest(key) != _digest_of(content):
            raise ObjectDiffers(key)
        return False

    def replace(self, key: str, content: bytes | Path) -> None:
        """Store an object and overwrite an existing one; for callers that may do so, such as a new revision."""
        with _explained("write", key):
            obstore.put(self._store, checked_key(key), content, use_multipart=_size(content) > IN_PARTS)

    def list(self, prefix: str = "") -> list[str]:
        """List the keys that begin with `prefix`, which must consist of whole path segments."""
        with _explained("list", prefix):
            return sorted(found["path"] for page in obstore.list(self._store, prefix or None) for found in page)

    def _digest(self, key: str) -> str:
        digest = hashlib.sha256()
        with _explained("read", key):
            for chunk in obstore.get(self._store, checked_key(key)).stream(min_chunk_size=CHUNK):
                digest.update(chunk)
        return digest.hexdigest()


@contextmanager
def _explained(what: str, key: str) -> Iterator[None]:
    """Convert storage errors to ones that name the object and say whether a retry may help."""
    try:
        yield
    except FileNotFoundError as error:
        raise Permanent(f"object {key} is missing: it was deleted or never stored.") from error
    except (PermissionDeniedError, UnauthenticatedError) as error:
        raise Retryable(
            f"object store refuses to {what} {key}: {_short(error)}. Check its credentials and permissions."
        ) from error
    except (AlreadyExistsError, PreconditionError):
        raise
    except BaseError as error:
        raise Retryable(f"object store failed to {what} {key}: {_short(error)}") from error


def _short(error: Exception) -> str:
    """Extract the server's message from an error, or say that there was no answer, without the key and the address."""
    text = str(error).partition("Debug source:")[0].strip()
    lines = text.splitlines()
    if status := STATUS.search(text):
        said = ": ".join(found[1] for found in SAID.finditer(text))
        return f"{status[1].strip()}{said and f', {said}'}"[:LONGEST_REASON].rstrip(".")
    if unheard := NO_ANSWER.search(text):
        address = urlsplit(unheard[1])
        return f"no answer from {address.scheme}://{address.netloc} ({unheard[2]})"[:LONGEST_REASON]
    return (lines[0] if lines else type(error).__name__)[:LONGEST_REASON]


def _store_at(url: str) -> Any:
    parts = urlsplit(url)
    match parts.scheme:
        case "file":
            directory = Path(unquote(parts.path))
            if parts.netloc not in {"", "localhost"} or not directory.is_absolute():
                raise ConfigurationError(f"objects URL {url!r}: write file:///directory with three slashes.")
            return LocalStore(directory, mkdir=True)
        case "memory":
            with _memories_lock:
                return _memories.setdefault(url, MemoryStore())
        case "s3":
            return _s3(url)
        case _:
            raise ConfigurationError(
                f"objects URL begins with {parts.scheme!r}: give file:///…, memory:// or s3://bucket/prefix?endpoint=…"
            )


def _s3(url: str) -> S3Store:
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query))
    if unknown := sorted(set(options) - S3_OPTIONS):
        raise ConfigurationError(
            f"objects URL: s3 takes no option {unknown[0]!r}. Valid options are: {', '.join(sorted(S3_OPTIONS))}. "
            f"Put keys in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."
        )
    if not parts.hostname or parts.username:
        raise ConfigurationError(
            "objects URL: write s3://bucket/prefix, and put keys in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."
        )
    endpoint = options.get("endpoint")
    given: dict[str, Any] = {"region": options.get("region", "us-east-1")}
    if endpoint is not None:
        given["endpoint"] = endpoint
    if "virtual_hosted" in options:
        given["virtual_hosted_style_request"] = options["virtual_hosted"] == "true"
    is_plain = options.get("allow_http") == "true" or (endpoint or "").startswith("http://")
    return S3Store(
        parts.hostname,
        prefix=parts.path.strip("/") or None,
        client_options={"allow_http": is_plain, "timeout": timedelta(seconds=60)},
        retry_config=RETRY,
        **given,
    )


def _size(content: bytes | Path) -> int:
    return content.stat().st_size if isinstance(content, Path) else len(content)


def _digest_of(content: bytes | Path) -> str:
    if isinstance(content, bytes):
        return hashlib.sha256(content).hexdigest()
    with content.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
