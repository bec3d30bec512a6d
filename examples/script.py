"""A plain script that runs its own jobs: they are stored, retried and resumed, whatever happens to the script.

`python script.py` greets two people; `python script.py -` greets those whose names it reads from standard input.

It prints:

    Hello, Ada!
    Hello, Grace!
"""

import os
import sys

from stagepost import App, Worker

app = App(os.environ.get("DATABASE_URL", "sqlite:///script.db"), auto_migrate=True)


@app.task
def greet(name: str) -> str:
    """Runs in a thread of the worker, beside other jobs."""
    return f"Hello, {name}!"


def main() -> None:
    """Enqueue a job for each name, and wait for the results."""
    names = map(str.strip, sys.stdin) if "-" in sys.argv else ["Ada", "Grace"]
    with Worker(app):
        greetings = [greet.enqueue(name) for name in names]
        for greeting in greetings:
            print(greeting.result(timeout=600))


if __name__ == "__main__":
    main()
