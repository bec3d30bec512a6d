"""The parts of the documentation that are made from the code; `python -m docs` writes them into the pages."""
