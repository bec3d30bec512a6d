"""Addresses as people may see them."""

from __future__ import annotations

from urllib.parse import urlsplit

__all__ = ["masked"]


def masked(url: str) -> str:
    """Hide the password of a URL."""
    parts = urlsplit(url)
    if parts.password is None:
        return url
    return url.replace(f":{parts.password}@", ":***@", 1)
