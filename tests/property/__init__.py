"""Properties that must hold for any input, searched by hypothesis."""
