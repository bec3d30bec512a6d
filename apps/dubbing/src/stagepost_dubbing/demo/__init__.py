"""`stagepost-dubbing demo`: dubs a talk, and kills the worker while it speaks."""
