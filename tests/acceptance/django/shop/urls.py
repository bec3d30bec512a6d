"""No pages; the checks call views themselves."""

from __future__ import annotations

from typing import Any

urlpatterns: list[Any] = []
