"""The check at every public function and record: arguments are of the kinds that annotations name.

What a number must fulfil beyond being one is checked where it is used. Arrays and values of other
libraries are checked there, too.
"""

from __future__ import annotations

import ast
import functools
import inspect
import operator
import os
import sys
import types
import typing
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from numbers import Rational, Real
from pathlib import Path
from typing import Any, Literal, TypeVar, final

from mezzotint.core import types as common_types
from mezzotint.core.errors import ParameterError, as_integer, as_number, as_scalar

Entry = TypeVar("Entry", bound=Callable[..., Any])


@final
@dataclass(frozen=True, kw_only=True)
class _Kind:
    """What an annotation allows.

    Arguments:
        read: makes the plain value of the kind; `_REFUSED` of a value that is of another kind.
        words: of the kind, after "need".
        is_shown: whether messages may show a value: bytes are keys.
        elements: of each element of a list or tuple; none where these are not checked.
    """

    read: Callable[[Any], object]
    words: str
    is_shown: bool = True
    elements: tuple[_Kind, ...] = ()


def checked(entry: Entry) -> Entry:
    """The function, or the record with its constructor, which refuses arguments of other kinds than
    its annotations name: text, which no comparison takes, NaN, which every limit lets pass, a
    fraction where things are counted. Scalars of other libraries become plain ones; a whole number
    counts however it is written: 1e4 is 10000, as every whole float below 2**53.

    Public functions become so where their package exports them; calls within the package cost
    nothing. Records and methods are decorated.

    Raises:
        ParameterError: when it is called: names the argument, the first one that is missing, or the
            first one that is taken by name alone and was given by place.
    """
    if not inspect.isclass(entry):
        return typing.cast(Entry, _checking(entry, entry.__name__))
    constructor = typing.cast(Any, entry).__init__
    setattr(entry, "__init__", _checking(constructor, entry.__name__))  # noqa: B010
    return typing.cast(Entry, entry)


def _checking(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    parameters = inspect.signature(function).parameters
    places: list[str] = []
    keywords: list[str] = []
    required: list[str] = []
    for parameter in parameters.values():
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            places.append(parameter.name)
        if parameter.kind is parameter.KEYWORD_ONLY:
            keywords.append(parameter.name)
        if parameter.default is parameter.empty and parameter.name in places + keywords:
            required.append(parameter.name)
    has_more_places = any(each.kind is each.VAR_POSITIONAL for each in parameters.values())

    @functools.cache
    def kinds() -> dict[str, tuple[_Kind, ...]]:  # at the first call, when all names are there
        namespace = getattr(inspect.unwrap(function), "__globals__")  # noqa: B009
        allowed: dict[str, tuple[_Kind, ...]] = {}
        for parameter in parameters.values():
            annotation = str(parameter.annotation)
            if parameter.name in places + keywords:
                allowed[parameter.name] = _allowed(annotation, namespace)
            elif annotation.startswith("Unpack["):
                allowed |= _options(annotation, namespace)
        return allowed

    @functools.wraps(function)
    def checking(*values: Any, **options: Any) -> Any:
        surplus = values[len(places) :]
        if surplus and keywords and not has_more_places:
            _refuse_by_place(keywords, surplus)
        placed = dict(zip(places, values, strict=False))
        for parameter_name in required:
            # Names of before, and names that it never had, are the function's own to judge.
            is_given = parameter_name in placed or parameter_name in options
            if not is_given and options.keys() <= parameters.keys():
                needed = ", ".join(word for word in required if word != "self")
                remedy = f"is missing; {name} needs {needed}"
                raise ParameterError(parameter_name, None, remedy)
        for parameter_name, allowed in kinds().items():
            # An option may have the name of a place that has none.
            for arguments in (placed, options):
                if allowed and parameter_name in arguments:
                    value = arguments[parameter_name]
                    arguments[parameter_name] = _checked(parameter_name, value, allowed)
        return function(*placed.values(), *surplus, **options)

    return checking


def _read(value: object, kinds: Sequence[_Kind]) -> object:
    """The plain value of the first kind that takes a value, itself where none is named, or
    `_REFUSED`.
    """
    if not kinds:
        return value
    scalar = as_scalar(value)
    for kind in kinds:
        plain_value = kind.read(scalar)
        if plain_value is not _REFUSED:
            return plain_value
    return _REFUSED


def _refuse_by_place(keywords: Sequence[str], surplus: Sequence[object]) -> None:
    named_values: list[str] = []
    for name, value in zip(keywords, surplus, strict=False):
        shown = repr(value) if _is_short(value) else "..."
        named_values.append(f"{name}={shown}")
    raise ParameterError(
        keywords[0], _shown(surplus[0]), f"give it by name: {', '.join(named_values)}"
    )


def _is_short(value: object) -> bool:
    return value is None or isinstance(value, Real | str)


def _shown(value: object) -> object:
    """What messages show of a value: of one that may be long, or a key, its class."""
    return value if _is_short(value) else type(value).__name__


def _checked(name: str, value: object, allowed: Sequence[_Kind]) -> object:
    plain_value = _read(value, allowed)
    if plain_value is not _REFUSED:
        return plain_value
    _check_elements(name, value, allowed)
    words = dict.fromkeys(kind.words for kind in allowed)
    words.pop(_NOTHING.words, None)
    if _NUMBER.words in words:
        words.pop(_FRACTION.words, None)
    remedy = f"need {' or '.join(words)}"
    is_shown = all(kind.is_shown for kind in allowed)
    shown = _shown(value) if is_shown else type(value).__name__
    if isinstance(value, _UNORDERED) and "a sequence" in remedy:
        remedy += "; make a list, in the order that is meant"
    raise ParameterError(name, shown, remedy)


def _check_elements(name: str, value: object, allowed: Sequence[_Kind]) -> None:
    """Raises ParameterError for the first element at fault, of a sequence."""
    if not _is_sequence(value) or isinstance(value, _UNORDERED):
        return
    for kind in allowed:
        if kind.elements:
            for index, element in enumerate(_elements(value) or ()):
                _checked(f"{name}[{index}]", element, kind.elements)


# Annotations --------------------------------------------------------------------------------------


def _allowed(annotation: str, namespace: Mapping[str, Any]) -> tuple[_Kind, ...]:
    """The kinds that an annotation names; none where it names one that is not checked here."""
    names = {**_COMMON_NAMES, **namespace}
    try:
        # Piece by piece, for names that type checkers alone import have no value.
        pieces = list(_pieces(ast.parse(annotation, mode="eval").body))
        hints = [eval(ast.unparse(piece), names) for piece in pieces]
    except (SyntaxError, NameError, AttributeError, TypeError):
        return ()
    return _kinds_of(hints, names)


def _options(annotation: str, namespace: Mapping[str, Any]) -> dict[str, tuple[_Kind, ...]]:
    """The kinds of the options that `**options: Unpack[Record]` takes."""
    record = namespace[annotation.removeprefix("Unpack[").removesuffix("]")]
    record_namespace = vars(sys.modules[record.__module__])
    allowed: dict[str, tuple[_Kind, ...]] = {}
    for name, hint in record.__annotations__.items():
        allowed[name] = _allowed(hint.__forward_arg__, record_namespace)
    return allowed


def _pieces(node: ast.expr) -> Iterable[ast.expr]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        yield from _pieces(node.left)
        yield from _pieces(node.right)
    else:
        yield node


def _kinds_of(hints: Iterable[Any], names: dict[str, Any]) -> tuple[_Kind, ...]:
    """In the order of the annotation, for the first that takes a value makes it plain; () where
    nothing is checked.
    """
    kinds: list[_Kind] = []
    for hint in hints:
        if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
            kinds += _kinds_of(typing.get_args(hint), names) or (_ANYTHING,)
        elif isinstance(hint, str):  # an alias
            kinds += _allowed(hint, names) or (_ANYTHING,)
        else:
            kinds.append(_kind_of(hint, names))
    if _NUMBER in kinds:  # a float stays one where both are allowed
        kinds = [kind for kind in kinds if kind is not _INTEGER]
    is_checked = any(kind is not _ANYTHING for kind in kinds)
    return tuple(kinds) if is_checked else ()


def _kind_of(hint: Any, names: dict[str, Any]) -> _Kind:
    origin = typing.get_origin(hint)
    if hint in _SIMPLE:
        return _SIMPLE[hint]
    if origin is Literal:
        return _choice(typing.get_args(hint))
    if origin in (Sequence, Iterable, list, tuple):
        return _sequence(origin, typing.get_args(hint), names)
    if origin in (Mapping, dict):
        return _mapping(typing.get_args(hint), names)
    if origin in _GENERIC:
        return _GENERIC[origin]
    is_protocol = getattr(hint, "_is_protocol", False)
    if origin is not None or not isinstance(hint, type) or is_protocol or hint in (object, Any):
        return _ANYTHING
    return _instance(hint, f"an object of the class {hint.__name__}")


def _instance(classes: type | tuple[type, ...], words: str, **options: Any) -> _Kind:
    def read(value: object) -> object:
        return value if isinstance(value, classes) else _REFUSED

    return _Kind(read=read, words=words, **options)


def _sequence(origin: Any, hints: Sequence[Any], names: dict[str, Any]) -> _Kind:
    """Sequences with their elements, also those of arrays, series and ranges."""
    element_kinds = [_kinds_of([hint], names) for hint in hints if hint is not ...]
    is_fixed = origin is tuple and ... not in hints
    unordered = _UNORDERED if origin is Sequence else ()

    def read(value: object) -> object:
        if not _is_sequence(value) or isinstance(value, unordered):
            return _REFUSED
        if origin is Iterable or not any(element_kinds):  # which may draw when they are asked
            return value
        elements = _elements(value)
        if elements is None or (is_fixed and len(elements) != len(element_kinds)):
            return _REFUSED
        kinds_of_each = element_kinds if is_fixed else element_kinds * len(elements)
        plain_elements = list(map(_read, elements, kinds_of_each))
        if any(element is _REFUSED for element in plain_elements):
            return _REFUSED
        if all(map(operator.is_, elements, plain_elements)):
            return elements
        return tuple(plain_elements) if isinstance(elements, tuple) else plain_elements

    words = dict.fromkeys(kind.words for kinds in element_kinds for kind in kinds)
    if not words:
        return _Kind(read=read, words="a sequence")
    elements = () if is_fixed else element_kinds[0]
    return _Kind(read=read, words=f"a sequence, each {' or '.join(words)}", elements=elements)


def _elements(value: object) -> list[object] | tuple[object, ...] | None:
    """The elements of a sequence of any library; None of one that does not give them."""
    if isinstance(value, list | tuple):
        return typing.cast("list[object] | tuple[object, ...]", value)
    rows: Any = value
    try:
        if hasattr(rows, "columns"):  # a frame, of which pandas gives the names of the columns
            rows = rows.to_numpy()
        return list(rows)
    except Exception:  # as each library has it
        return None


def _mapping(hints: Sequence[Any], names: dict[str, Any]) -> _Kind:
    key_kinds, value_kinds = (_kinds_of([hint], names) for hint in hints)

    def read(value: object) -> object:
        if not isinstance(value, Mapping):
            return _REFUSED
        entries: dict[object, object] = {}
        for key, entry in typing.cast("Mapping[object, object]", value).items():
            entries[_read(key, key_kinds)] = _read(entry, value_kinds)
        is_refused = _REFUSED in entries or any(entry is _REFUSED for entry in entries.values())
        return _REFUSED if is_refused else entries

    value_words = " or ".join(kind.words for kind in value_kinds)
    if not value_words:
        return _Kind(read=read, words="a mapping")
    return _Kind(read=read, words=f"a mapping of names, each to {value_words}")


def _choice(words: Collection[Any]) -> _Kind:
    def read(value: object) -> object:
        return value if isinstance(value, str | int) and value in words else _REFUSED

    return _Kind(read=read, words="one of " + ", ".join(map(str, words)))


def _read_integer(value: object) -> object:
    whole_number = as_integer(value)
    return _REFUSED if whole_number is None or as_number(value) is None else whole_number


def _read_number(value: object) -> object:
    number = as_number(value)
    return _REFUSED if number is None else number


def _read_fraction(value: Any) -> object:
    if isinstance(value, Decimal) and value.is_finite():
        return Fraction(value)
    if isinstance(value, bool) or not isinstance(value, Rational):
        return _REFUSED
    return value


def _read_bytes(value: Any) -> object:
    is_key = isinstance(value, bytes | bytearray | memoryview)
    return bytes(typing.cast(bytes, value)) if is_key else _REFUSED


def _read_path(value: Any) -> object:
    is_path = isinstance(value, os.PathLike)
    path = os.fspath(typing.cast("os.PathLike[Any]", value)) if is_path else b""
    return Path(path) if isinstance(path, str) else _REFUSED


def _is_sequence(value: object) -> bool:
    """Whether a value has elements; it is not asked for them, for loaders draw when they are."""
    if isinstance(value, str | bytes | Mapping) or getattr(value, "ndim", 1) == 0:
        return False
    return isinstance(value, Iterable) or hasattr(type(value), "__getitem__")


_UNORDERED = (Mapping, set, frozenset)
"""Their order may differ from what is meant, and that of sets from process to process."""

_REFUSED = object()
"""What a kind reads in a value of another kind."""

_ANYTHING = _Kind(read=lambda value: value, words="what is checked where it is used")
_NOTHING = _instance(types.NoneType, "None")
_INTEGER = _Kind(read=_read_integer, words="an integer")
_NUMBER = _Kind(read=_read_number, words="a number")
_FRACTION = _Kind(read=_read_fraction, words="a fraction")
_SIMPLE: dict[Any, _Kind] = {
    None: _NOTHING,
    types.NoneType: _NOTHING,
    bool: _instance(bool, "True or False"),
    int: _INTEGER,
    float: _NUMBER,
    str: _instance(str, "text"),
    bytes: _Kind(read=_read_bytes, words="bytes", is_shown=False),
    Fraction: _FRACTION,
}
_GENERIC: dict[Any, _Kind] = {
    Callable: _Kind(read=lambda value: value if callable(value) else _REFUSED, words="a function"),
    os.PathLike: _Kind(read=_read_path, words="a path"),
}

_COMMON_NAMES = {**vars(common_types), "Sequence": Sequence, "Mapping": Mapping}
"""Of aliases, wherever they are imported."""
