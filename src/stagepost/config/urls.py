"""URLs for logs and messages."""

from __future__ import annotations

from urllib.parse import urlsplit

__all__ = ["masked"]


def masked(url: str) -> str:
    """Replace a URL's password, so that it can be shown."""
    parts = urlsplit(url)
    if parts.password is None:
        return url
    return url.replace(f":{parts.password}@", ":***@", 1)
