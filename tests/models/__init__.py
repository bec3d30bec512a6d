"""Models of what the store promises about counting, searched completely by Spin; see models/README.md."""
