"""`python -m stagepost` is the same as `stagepost`."""

from stagepost.cli import main

if __name__ == "__main__":
    main()
