"""Dubs a video into another language: an application of Stagepost that uses only its public API."""

from stagepost_dubbing.dubbing import Dubbing, DubbingError, TaskView
from stagepost_dubbing.progress import StepProgress
from stagepost_dubbing.settings import DubbingSettings
from stagepost_dubbing.tables.segments import Segment
from stagepost_dubbing.tables.tasks import DubOptions, Task

__all__ = ["DubOptions", "Dubbing", "DubbingError", "DubbingSettings", "Segment", "StepProgress", "Task", "TaskView"]
