"""The fixture `world_url`: an empty database for each machine."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def world_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where the world's database is, by the name of its backend."""
    match request.param:
        case "memory":
            return "sqlite:///:memory:"
        case "file":
            return f"sqlite:///{tmp_path}/stagepost.db"
        case server:
            url: str = request.getfixturevalue(f"{server}_database")
            return url
