"""Language codes as people write them: `en`, `pt`, `pt-BR`, `zh_CN`."""

from __future__ import annotations

import re

from stagepost import Permanent

__all__ = ["base_language", "tidy_language"]

_CODE = re.compile(r"[a-z]{2,3}(-[a-z0-9]{2,8})*")


def tidy_language(code: str) -> str:
    """Normalize a code to lower case with hyphens; raises Permanent if it is invalid."""
    tidy = code.strip().replace("_", "-").lower()
    if not _CODE.fullmatch(tidy):
        raise Permanent(f"{code!r} is not a language code; write it like `en`, `pt` or `pt-BR`")
    return tidy


def base_language(code: str) -> str:
    """Return the code without its region: `pt-BR` becomes `pt`."""
    return tidy_language(code).partition("-")[0]
