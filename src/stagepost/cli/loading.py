"""Loads the app that `--app module:attribute` names, and explains any failure."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType

from stagepost.client.app import App
from stagepost.errors import ConfigurationError

__all__ = ["load_app"]

DEFAULT_ATTRIBUTE = "app"


def load_app(path: str) -> App:
    """Import the module, with the current directory on Python's path, and return its app."""
    module_name, _, attribute = path.partition(":")
    if not all(part.isidentifier() for part in module_name.split(".")):
        raise ConfigurationError(
            f"--app {path}: this is not a module name. Write it as in an import, such as `package.tasks:app`."
        )
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    return _find(_import(module_name), attribute)


def _import(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise ConfigurationError(
                f"--app: there is no module {error.name!r} in {Path.cwd()} or on Python's path. {_advice(name)}"
            ) from error
        raise ConfigurationError(
            f"--app: {name} cannot be imported: {error}{_place(error)}. Is that package installed here?"
        ) from error
    except ConfigurationError:
        raise
    except Exception as error:
        raise ConfigurationError(
            f"--app: {name} cannot be imported: {type(error).__name__}: {error}{_place(error)}. "
            f"Add --debug to see the traceback."
        ) from error


def _advice(name: str) -> str:
    if name.endswith(".py"):
        return f"Write the name of the module, not of the file: {name.removesuffix('.py')}."
    return "Go to the directory that holds it, or set PYTHONPATH."


def _find(module: ModuleType, attribute: str) -> App:
    apps = {name: value for name, value in vars(module).items() if isinstance(value, App)}
    if attribute:
        value = getattr(module, attribute, None)
        if isinstance(value, App):
            return value
        trouble = "is not a Stagepost App" if hasattr(module, attribute) else "does not exist"
        raise ConfigurationError(f"--app: {module.__name__}:{attribute} {trouble}. {_choice(module, apps)}")
    if DEFAULT_ATTRIBUTE in apps:
        return apps[DEFAULT_ATTRIBUTE]
    if len({id(app) for app in apps.values()}) == 1:
        return next(iter(apps.values()))
    raise ConfigurationError(f"--app: {module.__name__} does not say which app to use. {_choice(module, apps)}")


def _choice(module: ModuleType, apps: dict[str, App]) -> str:
    if not apps:
        return f'There is no App in {module.__file__}; create one, such as `app = App("sqlite:///stagepost.db")`.'
    return "Its apps are: " + ", ".join(f"{module.__name__}:{name}" for name in sorted(apps)) + "."


def _place(error: Exception) -> str:
    """Locate the error in the user's code."""
    if isinstance(error, SyntaxError):
        return f" ({error.filename}, line {error.lineno})"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith("<frozen")]
    outside = [frame for frame in frames if "importlib" not in frame.filename and frame.filename != __file__]
    return f" ({outside[-1].filename}, line {outside[-1].lineno})" if outside else ""
