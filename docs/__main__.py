"""`python -m docs`: rewrites the marked sections of the pages; with `--check`, only says which are out of date."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from docs.sections import SECTIONS

__all__ = ["main", "pages", "refreshed"]

ROOT = Path(__file__).parent
SECTION = re.compile(r"(<!-- made by \./dev docs: ([a-z-]+) -->\n).*?(<!-- end -->\n)", re.DOTALL)


def main(arguments: list[str]) -> int:
    """Bring the pages up to date; returns the exit code."""
    only_check = arguments == ["--check"]
    if arguments and not only_check:
        sys.stderr.write("usage: python -m docs [--check]\n")
        return 2
    stale = [page for page in pages() if refreshed(page) != page.read_text(encoding="utf-8")]
    for page in stale:
        name = page.relative_to(ROOT.parent)
        sys.stdout.write(f"{name} is out of date: run ./dev docs\n" if only_check else f"{name} rewritten\n")
        if not only_check:
            page.write_text(refreshed(page), encoding="utf-8")
    return int(only_check and bool(stale))


def pages() -> list[Path]:
    """Find all pages."""
    return sorted(ROOT.rglob("*.md"))


def refreshed(page: Path) -> str:
    """Read a page with its marked sections made anew."""

    def make(match: re.Match[str]) -> str:
        name = match[2]
        if name not in SECTIONS:
            raise LookupError(f"{page.name} has a section {name!r}; known are: {', '.join(sorted(SECTIONS))}.")
        return f"{match[1]}\n{SECTIONS[name]().strip()}\n\n{match[3]}"

    return SECTION.sub(make, page.read_text(encoding="utf-8"))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
