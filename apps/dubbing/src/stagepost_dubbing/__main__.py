"""`python -m stagepost_dubbing`."""

from stagepost_dubbing.cli import main

if __name__ == "__main__":
    main()
