"""Stagepost beside its peers and beside the bare limit of its databases; see docs/benchmarks.md."""
