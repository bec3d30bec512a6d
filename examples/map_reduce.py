"""A pipeline that counts words in files: one step lists them, one counts each of them, one adds the counts up.

It prints:

    split: 1 of 1
    count: 3 of 3
    reduce: 1 of 1
    the 3, sea 2, sky 1
"""

import asyncio
from collections import Counter
from pathlib import Path

from stagepost import App, Worker

app = App("sqlite:///:memory:")


@app.task
def split(folder: str) -> list[str]:
    """List the files to count."""
    return sorted(str(path) for path in Path(folder).glob("*.txt"))


@app.task
def count(path: str) -> dict[str, int]:
    """Count the words of one file."""
    return Counter(Path(path).read_text(encoding="utf-8").split())


@app.task(name="reduce")
def add_up(counts: list[dict[str, int]]) -> dict[str, int]:
    """Add the counts of all files up."""
    total = sum((Counter(part) for part in counts), Counter[str]())
    return dict(total.most_common())


words = app.pipeline("words")
files = words.step(split, inputs={"folder": words.input("folder")})
counts = words.step(count, each=files)
words.step(add_up, name="reduce", inputs={"counts": counts})

for name, text in {"a.txt": "the sea the", "b.txt": "sky", "c.txt": "the sea"}.items():
    Path(name).write_text(text, encoding="utf-8")

run = words.start("words of today", folder=".")
asyncio.run(Worker(app).run(until_idle=True))

for step in run.graph().steps:
    print(f"{step.name}: {step.counts.completed} of {step.items}")
print(", ".join(f"{word} {number}" for word, number in run.result("reduce").items()))
