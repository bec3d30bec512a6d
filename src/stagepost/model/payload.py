"""Encodes arguments as JSON and decodes them, checked against the task's type hints."""

from __future__ import annotations

import inspect
import re
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from stagepost.errors import PayloadError, PayloadTooLarge, TaskError
from stagepost.model import json_values
from stagepost.model.constraints import enforceable, unenforced
from stagepost.model.differences import difference
from stagepost.model.fitting import shape_of
from stagepost.model.json_values import PayloadLimits
from stagepost.model.other_libraries import JOB_OPTION_WORDS, option_advice

__all__ = ["PayloadLimits", "Signature", "decode_plainly"]

_KINDS = inspect.Parameter
_POSITIONAL_KINDS = (_KINDS.POSITIONAL_ONLY, _KINDS.POSITIONAL_OR_KEYWORD)
_KINDS_IN_ORDER = (*_POSITIONAL_KINDS, _KINDS.VAR_POSITIONAL, _KINDS.KEYWORD_ONLY, _KINDS.VAR_KEYWORD)
_FIELD_IN_MESSAGE = re.compile(r"`\$\.([^.\[`]+)|(?:missing required|unknown) field `([^`]+)`$")


JOB_OPTIONS = frozenset(
    {"at", "delay", "id", "longest_wait", "max_attempts", "on_conflict", "priority", "queue", "trace", "unique_for"}
    | {"patience", "unique_key"}
)
"""Names that `using` takes."""


@dataclass(frozen=True, slots=True)
class _Parameter:
    """One parameter of the function, which is a field of the JSON object."""

    name: str
    annotation: Any
    is_required: bool
    default: Any = None
    trouble: str | None = None
    """Why no JSON value can be decoded as the annotation."""


class Signature:
    """The parameters of one task's function; converts a call to one JSON object and back.

    The object has one field per given argument, named after the parameter and in the order of the
    parameters, regardless of how the call was written. Defaults are not stored, so changing one also
    affects jobs that are already enqueued. `*args` is a list and `**kwargs` an object, each under its own name.

    The handler gets values that equal the caller's, or `encode` refuses the call: a datetime, for example,
    needs a parameter annotated as one. Where the annotation is `Any`, they have the same types as well. The only
    exception is that a tuple may be given for a list, and a list for a tuple, if the parameter is annotated so.
    """

    __slots__ = (
        "_all_by_position",
        "_arguments",
        "_decoder",
        "_extra_keywords",
        "_extra_positions",
        "_free",
        "_is_plain",
        "_names",
        "_parameters",
        "_positional",
        "_positional_only",
        "_required",
        "_simple",
        "function_name",
        "result_annotation",
    )

    function_name: str
    result_annotation: Any

    if not typing.TYPE_CHECKING:  # otherwise a call would pass type checks

        def __call__(self, *_args: Any, **_kwargs: Any) -> typing.NoReturn:
            """Answer `task.signature(…)`, which Celery's tasks have."""
            raise TypeError("signature(…) is a word of Celery. Write: task.job(…), or a pipeline")

    def __init__(self, function: Callable[..., Any], parameters: list[inspect.Parameter], name: str) -> None:
        """Create signatures with `Signature.of` instead."""
        self.function_name = name
        result = self._enforced("its return value", _result_annotation(function))
        self.result_annotation = Any if json_values.why_not_decodable(result) else result
        of_kind = {kind: [p.name for p in parameters if p.kind is kind] for kind in _KINDS_IN_ORDER}
        self._positional_only = frozenset(of_kind[_KINDS.POSITIONAL_ONLY])
        self._positional = tuple(of_kind[_KINDS.POSITIONAL_ONLY] + of_kind[_KINDS.POSITIONAL_OR_KEYWORD])
        self._extra_positions = next(iter(of_kind[_KINDS.VAR_POSITIONAL]), None)
        self._extra_keywords = next(iter(of_kind[_KINDS.VAR_KEYWORD]), None)
        self._is_plain = not (self._positional_only or self._extra_positions or self._extra_keywords)
        self._parameters = {p.name: self._read(function, p) for p in parameters}
        self._names = frozenset(self._parameters) - {self._extra_positions, self._extra_keywords}
        self._simple = {p.name: p.annotation for p in self._parameters.values() if p.annotation in json_values.SIMPLE}
        self._free = {
            p.name: shape_of(p.annotation) for p in self._parameters.values() if json_values.has_free_part(p.annotation)
        }
        self._required = frozenset(p.name for p in self._parameters.values() if p.is_required)
        self._all_by_position = len(self._positional) if self._required <= set(self._positional) else -1
        self._arguments = _struct_of(self._parameters.values())
        self._decoder = msgspec.json.Decoder(self._arguments, dec_hook=json_values.from_json)

    @classmethod
    def of(cls, function: Callable[..., Any], *, context_parameter: bool, name: str | None = None) -> Signature:
        """Inspect the function's parameters; with `context_parameter`, the first one receives the job's context.

        Errors call the function `name`, which is the name of its task.
        """
        parameters = list(inspect.signature(function).parameters.values())
        if context_parameter:
            if not parameters or parameters[0].kind not in _POSITIONAL_KINDS:
                raise TaskError(
                    f"{_full_name(function)} has no positional parameter that could "
                    f"receive the job's context. Add one as the first, or do not request the context."
                )
            del parameters[0]
        return cls(function, parameters, name or _full_name(function))

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The annotation of every parameter by name, in order; `typing.Any` where there is none."""
        return {name: parameter.annotation for name, parameter in self._parameters.items()}

    @property
    def required(self) -> frozenset[str]:
        """The parameters that have no default."""
        return self._required

    def encode(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, limits: PayloadLimits) -> str:
        """Bind the arguments like a call, then check and encode them."""
        values = self._bind(args, kwargs)
        is_simple = json_values.are_simple(values, self._simple)
        try:
            # Positional arguments are already in order.
            encoded = json_values.ENCODER.encode(values if is_simple and not kwargs else self._arguments(**values))
            if len(encoded) > limits.max_bytes:
                raise PayloadTooLarge(f"arguments of {self.function_name}", len(encoded), limits.max_bytes)
            if is_simple:
                return encoded.decode()
            if json_values.may_break_limits(encoded, limits, wrapper_depth=1):
                self._refuse_broken_limits(values, limits)
            decoded = self._decoder.decode(encoded)
        except (TypeError, ValueError, RecursionError) as error:
            raise self._refusal(values, error, limits) from error
        for name, given in values.items():
            received = getattr(decoded, name)
            if given is not received and (
                given != received or (name in self._free and not json_values.is_plain(given))
            ):
                self._refuse_difference(name, given, received, limits)
        return encoded.decode()

    def decode(self, payload: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Convert a payload back to typed arguments for `function(*args, **kwargs)`."""
        try:
            decoded = self._decoder.decode(payload)
        except (ValueError, RecursionError) as error:
            raise PayloadError(self._complaint(error)) from error
        given = msgspec.structs.asdict(decoded)
        if len(self._required) < len(given):
            given = {name: value for name, value in given.items() if value is not msgspec.UNSET}
        return ((), given) if self._is_plain else self._as_call(given)

    def _read(self, function: Callable[..., Any], parameter: inspect.Parameter) -> _Parameter:
        if parameter.name.startswith("__"):
            raise TaskError(f"{self.function_name}: rename parameter `{parameter.name}` to begin without `__`.")
        annotation = _resolved(function, parameter.name, parameter.annotation)
        is_extra = parameter.kind in {_KINDS.VAR_POSITIONAL, _KINDS.VAR_KEYWORD}
        if parameter.kind is _KINDS.VAR_POSITIONAL:
            annotation = types.GenericAlias(tuple, (annotation, ...))
        elif parameter.kind is _KINDS.VAR_KEYWORD:
            is_unpacked = typing.get_origin(annotation) is typing.Unpack
            annotation = typing.get_args(annotation)[0] if is_unpacked else types.GenericAlias(dict, (str, annotation))
        is_required = not is_extra and parameter.default is _KINDS.empty
        annotation = self._enforced(f"parameter `{parameter.name}`", annotation)
        trouble = json_values.why_not_decodable(annotation)
        if trouble and is_required:
            raise TaskError(
                f"{self.function_name}: parameter `{parameter.name}: {json_values.name_of(annotation)}` "
                f"cannot be decoded from JSON: {trouble}. "
                f"Pass something that identifies it, such as a key or path, or give it a default."
            )
        return _Parameter(parameter.name, annotation, is_required, parameter.default, trouble)

    def _enforced(self, what: str, annotation: Any) -> Any:
        annotation = enforceable(annotation)
        if problem := unenforced(annotation):
            raise TaskError(f"{self.function_name}: {what} is {json_values.name_of(annotation)}, and {problem}.")
        return annotation

    def _bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        if len(args) == self._all_by_position and not kwargs:  # a faster path for nearly every call
            return dict(zip(self._positional, args))  # noqa: B905 - as many of each; to say so costs half as much again
        if len(args) > len(self._positional) and not self._extra_positions:
            raise PayloadError(
                f"{self.function_name} takes {len(self._positional)} positional arguments, "
                f"but {len(args)} were given. Its parameters are {self._listing()}."
            )
        values = dict(zip(self._positional, args, strict=False))
        if kwargs:
            self._bind_keywords(values, kwargs)
        if self._extra_positions and len(args) > len(self._positional):
            values[self._extra_positions] = args[len(self._positional) :]
        if not self._required <= values.keys():
            missing = next(name for name in self._parameters if name in self._required - values.keys())
            raise PayloadError(
                f"{self.function_name}: argument `{missing}` is missing. Its parameters are {self._listing()}."
            )
        return values

    def _bind_keywords(self, values: dict[str, Any], kwargs: Mapping[str, Any]) -> None:
        extra = {}
        for name, value in kwargs.items():
            if name not in self._names or name in self._positional_only:
                extra[name] = value
            elif name in values:
                raise PayloadError(f"{self.function_name}: argument `{name}` was given twice.")
            else:
                values[name] = value
        if not extra:
            return
        if not self._extra_keywords:
            name = next(iter(extra))
            reason = "is positional only" if name in self._positional_only else "is not one of its parameters"
            raise PayloadError(f"{self.function_name}: `{name}` {reason}. They are {self._listing()}.{_hint(name)}")
        values[self._extra_keywords] = extra

    def _as_call(self, given: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        extra_positions = given.pop(self._extra_positions, ()) if self._extra_positions else ()
        extra_keywords = given.pop(self._extra_keywords, {}) if self._extra_keywords else {}
        by_position = self._positional if extra_positions else self._given_by_position(given)
        # A default replaces an argument that was left out before one that was given.
        args = tuple(given.pop(name, self._parameters[name].default) for name in by_position)
        return (*args, *extra_positions), {**given, **extra_keywords}

    def _given_by_position(self, given: dict[str, Any]) -> list[str]:
        names = [name for name in self._positional if name in self._positional_only]
        while names and names[-1] not in given:
            names.pop()
        return names

    def _refuse_broken_limits(self, values: dict[str, Any], limits: PayloadLimits) -> None:
        for name, value in values.items():
            problem = json_values.broken_limit(value, limits)
            if problem:
                raise PayloadError(f"{self.function_name}: argument `{name}` {problem}.")

    def _refuse_difference(self, name: str, given: object, received: object, limits: PayloadLimits) -> None:
        self._refuse_broken_limits({name: given}, limits)
        found = difference(given, received, path=name, shape=self._free.get(name))
        if found:
            annotation = json_values.name_of(self._parameters[name].annotation)
            raise PayloadError(
                f"{self.function_name}: argument `{name}` does not fit its parameter `{name}: {annotation}`: "
                f"{found}. Annotate the parameter with the type of the value, or convert the value first."
            )

    def _refusal(self, values: dict[str, Any], error: Exception, limits: PayloadLimits) -> PayloadError:
        """Find the argument that caused `error`, and describe the problem."""
        for name, value in values.items():
            parameter = self._parameters[name]
            wanted = json_values.name_of(parameter.annotation)
            if parameter.trouble:
                return PayloadError(
                    f"{self.function_name}: a job cannot pass a value for parameter `{name}: {wanted}`: "
                    f"{parameter.trouble}. Leave it at its default."
                )
            unencodable = json_values.why_not_encodable(value, limits)
            if unencodable:
                return PayloadError(f"{self.function_name}: argument `{name}` {unencodable}.")
            try:
                msgspec.json.decode(
                    json_values.ENCODER.encode({name: value}),
                    type=_struct_of([parameter]),
                    dec_hook=json_values.from_json,
                )
            except ValueError as mismatch:
                return PayloadError(
                    f"{self.function_name}: argument `{name}` must be {wanted}, "
                    f"not {type(value).__name__} ({mismatch})."
                )
        return PayloadError(f"{self.function_name}: {error}")

    def _complaint(self, error: Exception) -> str:
        """Explain which parameter a payload does not match."""
        found = _FIELD_IN_MESSAGE.search(str(error))
        name = (found[1] or found[2]) if found else None
        declared = self._parameters.get(name) if name else None
        where = f" for `{name}: {json_values.name_of(declared.annotation)}`" if declared else ""
        return (
            f"payload does not fit {self.function_name}{where}: {error}. Its parameters are "
            f"{self._listing()}. If they changed after the job was enqueued, give new ones a default and "
            f"keep old ones, or change the job's arguments."
        )

    def _listing(self) -> str:
        return ", ".join(f"`{name}`" for name in self._parameters) or "none"


def decode_plainly(payload: str) -> dict[str, Any]:
    """Convert a payload to arguments by name without knowing the task's types."""
    try:
        return msgspec.json.decode(payload, type=dict[str, Any])
    except (ValueError, RecursionError) as error:
        raise PayloadError(f"stored arguments are not a JSON object: {error}.") from error


def _full_name(function: Callable[..., Any]) -> str:
    named = function if hasattr(function, "__qualname__") else type(function)
    return f"{named.__module__}.{named.__qualname__}"


def _resolved(function: Callable[..., Any], name: str, annotation: Any) -> Any:
    """Evaluate one annotation on its own, because the context's may exist only for type checkers."""
    if annotation is _KINDS.empty or annotation is object:
        return Any
    namespace = getattr(inspect.unwrap(function), "__globals__", {})
    holder = types.SimpleNamespace(__annotations__={name: annotation})
    try:
        return typing.get_type_hints(holder, globalns=namespace, include_extras=True)[name]
    except (NameError, AttributeError, TypeError, SyntaxError) as error:
        raise TaskError(
            f"{_full_name(function)}: the annotation of `{name}`, {annotation!r}, "
            f"cannot be evaluated: {error}. Import it at module level, not only under `if TYPE_CHECKING`."
        ) from error


def _result_annotation(function: Callable[..., Any]) -> Any:
    annotation = inspect.signature(function).return_annotation
    try:
        return _resolved(function, "return", annotation)
    except TaskError:
        return Any  # accept a return type that exists only for type checkers


def _struct_of(parameters: typing.Iterable[_Parameter]) -> type[msgspec.Struct]:
    """Create the record type for the arguments of one call; missing ones are UNSET and not encoded."""
    fields = [
        (p.name, p.annotation) if p.is_required else (p.name, p.annotation, msgspec.UNSET)
        for p in parameters
        if not p.trouble
    ]
    return msgspec.defstruct("Arguments", fields, kw_only=True, forbid_unknown_fields=True)


def _hint(name: str) -> str:
    """Say how to set an option of the job, if that is what an unknown argument was meant for."""
    if name in JOB_OPTIONS:
        return f" To set this option of the job, write using({name}=…).enqueue(…)."
    library, line = JOB_OPTION_WORDS.get(name, ("", ""))
    option, is_option, _ = line.partition("=")
    if is_option and option in JOB_OPTIONS:
        return f" {name} is a word of {library}. Write: using({option}=…).enqueue(…)."
    return option_advice([name], JOB_OPTION_WORDS)
