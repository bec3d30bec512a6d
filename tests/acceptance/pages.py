"""Parses the documentation's pages: code blocks and how each is tested, links, names in code type."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FENCE = re.compile(
    r"(?:^<!-- before:(?P<before>(?:(?!-->).)*)-->\n)?"
    r"(?:^<!-- (?P<mark>tested|not run)(?:: (?P<words>[^\n]*?))? -->\n)?"
    r"^(?P<indent> *)```(?P<language>\w*)\n(?P<text>.*?)^ *```\n"
    r"(?:<!-- then:(?P<then>(?:(?!-->).)*)-->)?",
    re.MULTILINE | re.DOTALL,
)
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
CODE = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\]\(([^()\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A code block; what is said of it in the comment before it, what it needs, and what is checked after it."""

    page: Path
    line: int
    language: str
    text: str
    mark: str | None
    words: tuple[str, ...]
    before: str
    then: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    def word(self, name: str) -> str | None:
        """Give what follows a word such as `on` or `after`."""
        return next((text.partition(" ")[2] for text in self.words if text.split(" ")[0] == name), None)


def pages() -> list[Path]:
    """List the pages that make promises to readers."""
    return [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


@cache
def text_of(page: Path) -> str:
    """Read a page."""
    return page.read_text(encoding="utf-8")


@cache
def blocks_of(page: Path) -> list[Block]:
    """List a page's code blocks."""
    text = text_of(page)
    return [
        Block(
            page=page,
            line=text.count("\n", 0, found.start("text")),
            language=found["language"],
            text=textwrap.dedent(found["text"]),
            mark=found["mark"],
            words=tuple(word.strip() for word in (found["words"] or "").split(",") if word.strip()),
            before=found["before"] or "",
            then=found["then"] or "",
        )
        for found in FENCE.finditer(text)
    ]


def blocks(language: str, *, mark: str | None = "tested") -> list[Block]:
    """List the blocks of a language on all pages."""
    return [block for page in pages() for block in blocks_of(page) if (block.language, block.mark) == (language, mark)]


def prose_of(page: Path) -> str:
    """Give a page's text without its code blocks and comments."""
    return COMMENT.sub("", FENCE.sub("", text_of(page)))


def anchors_of(page: Path) -> set[str]:
    """List what links to a page's headings end with, as GitHub and others make it."""
    headings = HEADING.findall(FENCE.sub("", text_of(page)))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def commands_in(block: Block) -> Iterator[str]:
    """List the command lines of a block of shell or of a console."""
    joined = re.sub(r"\\\n\s*", " ", block.text)
    for line in joined.splitlines():
        command = line.removeprefix("$ ") if block.language == "console" else line
        if block.language != "console" or line.startswith("$ "):
            yield command.strip()
