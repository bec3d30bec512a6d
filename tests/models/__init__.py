"""Models of what the store promises about counting and sending, searched completely by Spin; see models/README.md."""
