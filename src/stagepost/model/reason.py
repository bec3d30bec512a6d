"""Reduces errors to reasons without ids and numbers, so that similar failures form a group."""

from __future__ import annotations

import re

__all__ = ["REASON_CHARACTERS", "reason_of"]

REASON_CHARACTERS = 191
"""The longest text that every database can index."""
LINE_CHARACTERS = 1_000

UUID = re.compile(r"\b[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}\b", re.IGNORECASE)
HEX = re.compile(r"\b0x[0-9a-f]+\b|\b(?=[a-f]*[0-9])(?=[0-9]*[a-f])[0-9a-f]{8,}\b", re.IGNORECASE)
NUMBER = re.compile(r"[0-9]+(?:[.,:][0-9]+)*")


def reason_of(error: str | None) -> str:
    """Return an error's first line with ids and numbers blanked; never empty, at most 191 characters."""
    line = next((line for line in (error or "").splitlines() if line.strip()), "")[:LINE_CHARACTERS]
    text = " ".join(line.split())
    for pattern, blank in ((UUID, "<id>"), (HEX, "<hex>"), (NUMBER, "#")):
        text = pattern.sub(blank, text)
    return text[:REASON_CHARACTERS].rstrip() or "no message"
