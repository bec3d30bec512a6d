"""Properties: what must hold for whatever comes, searched by hypothesis."""
