"""`stagepost-dubbing demo`: a talk is dubbed, and the worker is killed while it speaks."""
