"""The app, configured by this process's environment, for `stagepost --app stagepost_dubbing.app:app`."""

from __future__ import annotations

from stagepost_dubbing.dubbing import Dubbing

__all__ = ["app"]

app = Dubbing().app
