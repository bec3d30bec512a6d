"""Dubs a video into another language: an application of Stagepost, on its public API alone."""
