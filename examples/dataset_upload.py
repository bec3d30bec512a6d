"""An upload into a dataset, under a gate: labelling cannot begin before every file is in, or is waived by somebody.

It prints:

    refused: gate 'dataset:7' is closed: batch 'upload:42': 0 of 6 done.
    after the upload: 4 completed, 2 failed, gate open: False
    2 files: Permanent: no such picture
    after another try: 5 completed, 1 failed, gate open: False
    after the waiver: 5 completed, 1 waived, gate open: True
    labelled cat.png, cow.png, dog.png, hen.png, pig.png
"""

import asyncio
from pathlib import Path

from stagepost import App, JobState, Permanent, Worker
from stagepost.errors import GateClosed

app = App("sqlite:///pictures.db")
dataset = app.gate("dataset:7")
names = ["cat.png", "cow.png", "dog.png", "hen.png", "owl.png", "pig.png"]


@app.task
def upload(name: str) -> int:
    """Read one file; without it there is nothing to try again, until somebody has put it there."""
    try:
        return len(Path(name).read_bytes())
    except FileNotFoundError:
        raise Permanent("no such picture") from None


@app.task
def label(pictures: list[str]) -> str:
    """Work on the whole dataset."""
    return f"labelled {', '.join(pictures)}"


def start_labelling() -> str:
    """Check the gate and ask for the job in one transaction: no upload can begin in between."""
    pictures = sorted(item.key for item in batch.items([JobState.COMPLETED]))
    with app.transaction() as tx:
        dataset.check(tx=tx)
        return label.using(tx).enqueue(pictures).id


def work() -> None:
    """Run what is queued."""
    asyncio.run(Worker(app).run(until_idle=True))


def say(when: str) -> None:
    """Print how the upload stands."""
    counts = batch.counts()
    parts = {"completed": counts.completed, "failed": counts.failed, "waived": counts.waived}
    states = ", ".join(f"{number} {state}" for state, number in parts.items() if number)
    print(f"{when}: {states}, gate open: {dataset.is_open()}")


for name in names[:4]:
    Path(name).write_bytes(b"picture")

app.migrate()
with app.batch("upload:42", gate=dataset, on_failed="hold") as batch:
    batch.add(upload.item(name, name) for name in names)
try:
    start_labelling()
except GateClosed as closed:
    print(f"refused: {str(closed).partition('. ')[0]}.")

work()
say("after the upload")
for group in batch.failed():
    print(f"{group.items} files: {group.reason}")

Path("pig.png").write_bytes(b"picture")
batch.retry()
work()
say("after another try")

batch.waive(["owl.png"], why="the picture is lost", actor="mara")
say("after the waiver")

job_id = start_labelling()
work()
print(app.job(job_id).result(timeout=5))
