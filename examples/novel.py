"""A parent and its children: every scene of a novel is summarised by a job of its own, at the rate of a provider.

The parent waits without a slot. When the last scene is done it goes on as `join`, which reads what all of them gave.

It prints:

    4 scenes: 3 completed, 1 failed
    1: The lamp of the lighthouse had not burned for nine nights.
    2: Nobody asked the lamp, Mara said, and lit the lamp.
    3: Permanent: a scene without words
    4: The ship came in by the lamp, and the lighthouse burned till morning.
"""

import asyncio
import re
from collections import Counter

from stagepost import App, JobContext, Permanent, RateLimit, Worker

NOVEL = """
Rain fell on the rocks. The lamp of the lighthouse had not burned for nine nights. Rain fell on the sea.
***
They asked the mayor. They asked the priest. Nobody asked the lamp, Mara said, and lit the lamp.
***
…
***
Mara slept. The ship came in by the lamp, and the lighthouse burned till morning.
"""
PROVIDER = RateLimit("model", per_second=50, burst=2)

app = App("sqlite:///novel.db")
common = Counter(re.findall(r"\w+", NOVEL.lower()))


@app.task(rate_limit=PROVIDER)
def summarise(scene: str) -> str:
    """Stand in for a call to a model: choose the sentence that says most of what the novel is about."""
    sentences = re.findall(r"\w[^.]*\.", scene)
    if not sentences:
        raise Permanent("a scene without words")
    return max(sentences, key=lambda sentence: sum(common[word] for word in re.findall(r"\w+", sentence.lower())))


@app.task
def join(job: JobContext) -> list[str]:
    """Read the summaries in the order of the scenes; one that failed leaves a gap, not a failed novel."""
    scenes = sorted(job.children(summarise), key=lambda child: int(child.key))
    return [f"{int(scene.key) + 1}: {scene.result or scene.error}" for scene in scenes]


@app.task
def summarise_novel(job: JobContext, text: str) -> list[str]:
    """Submit a child per scene; an attempt after a crash gets the same children."""
    job.submit_many(summarise.job(scene.strip()) for scene in text.split("***"))
    return job.then(join)


novel = summarise_novel.enqueue(NOVEL)
asyncio.run(Worker(app).run(until_idle=True))

scenes = novel.children()
print(f"{scenes.total} scenes: {scenes.completed} completed, {scenes.failed} failed")
print("\n".join(novel.result(timeout=5)))
