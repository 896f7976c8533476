"""The check at every public function and record: arguments are of the kinds that annotations name.

What a number must fulfil beyond being one is checked where it is used. Arrays and values of other
libraries are checked there, too.
"""

from __future__ import annotations

import ast
import functools
import inspect
import math
import operator
import os
import types
import typing
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from numbers import Integral, Rational, Real
from typing import Any, Literal, TypeVar, final

import numpy as np

from mezzotint.core import types as common_types
from mezzotint.core.errors import ParameterError

Entry = TypeVar("Entry", bound=Callable[..., Any])


@final
@dataclass(frozen=True, kw_only=True)
class _Kind:
    """What an annotation allows.

    Arguments:
        accepts: whether a value is of the kind.
        words: of the kind, after "need".
        is_shown: whether messages may show a value: bytes are keys.
        elements: of each element of a list or tuple; none where these are not checked.
    """

    accepts: Callable[[object], bool]
    words: str
    is_shown: bool = True
    elements: tuple[_Kind, ...] = ()


def checked(entry: Entry) -> Entry:
    """The function, or the record with its constructor, which refuses arguments of other kinds than
    its annotations name: text, which no comparison takes, NaN, which every limit lets pass, a
    fraction where things are counted. Numbers of other libraries become plain ones.

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
        for parameter_name in places + keywords:
            annotation = str(parameters[parameter_name].annotation)
            allowed[parameter_name] = _allowed(annotation, namespace)
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
                    _check(parameter_name, value, allowed)
                    arguments[parameter_name] = _plain(value, allowed)
        return function(*placed.values(), *surplus, **options)

    return checking


def _plain(value: object, allowed: Sequence[_Kind]) -> object:
    """A number of another library as one of Python's, which every file format has."""
    if type(value) in (int, float) or value is None or not _NUMBERS.issuperset(allowed):
        return value
    if _is_integer(value):
        return operator.index(typing.cast(typing.SupportsIndex, value))
    return float(typing.cast(Real, value))


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


def _check(name: str, value: object, allowed: Sequence[_Kind]) -> None:
    if any(kind.accepts(value) for kind in allowed):
        return
    _check_elements(name, value, allowed)
    words = dict.fromkeys(kind.words for kind in allowed)
    words.pop(_NOTHING.words, None)
    if _NUMBER.words in words:
        words.pop(_INTEGER.words, None)
    is_shown = all(kind.is_shown for kind in allowed)
    shown = _shown(value) if is_shown else type(value).__name__
    raise ParameterError(name, shown, f"need {' or '.join(words)}")


def _check_elements(name: str, value: object, allowed: Sequence[_Kind]) -> None:
    """Raises ParameterError for the first element at fault, of a list or a tuple."""
    if not isinstance(value, list | tuple):
        return
    for kind in allowed:
        if kind.elements:
            for index, element in enumerate(typing.cast("Sequence[object]", value)):
                _check(f"{name}[{index}]", element, kind.elements)


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


def _pieces(node: ast.expr) -> Iterable[ast.expr]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        yield from _pieces(node.left)
        yield from _pieces(node.right)
    else:
        yield node


def _kinds_of(hints: Iterable[Any], names: dict[str, Any]) -> tuple[_Kind, ...]:
    kinds: list[_Kind] = []
    for hint in hints:
        if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
            inner_kinds = _kinds_of(typing.get_args(hint), names)
        elif isinstance(hint, str):  # an alias
            inner_kinds = _allowed(hint, names)
        else:
            kind = _kind_of(hint, names)
            inner_kinds = () if kind is None else (kind,)
        if not inner_kinds:
            return ()
        kinds += inner_kinds
    return tuple(kinds)


def _kind_of(hint: Any, names: dict[str, Any]) -> _Kind | None:
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
        return None
    return _Kind(
        accepts=lambda value: isinstance(value, hint),
        words=f"an object of the class {hint.__name__}",
    )


def _sequence(origin: Any, hints: Sequence[Any], names: dict[str, Any]) -> _Kind:
    """Sequences, and the elements of lists and tuples; arrays are checked where they are used."""
    element_kinds = [_kinds_of([hint], names) for hint in hints if hint is not ...]
    is_fixed = origin is tuple and ... not in hints

    def accepts(value: object) -> bool:
        if not _is_sequence(value):
            return False
        if not isinstance(value, list | tuple):
            return True
        elements = typing.cast("Sequence[object]", value)
        if is_fixed and len(elements) != len(element_kinds):
            return False
        kinds_of_each = element_kinds if is_fixed else element_kinds * len(elements)
        return all(map(_is_any, elements, kinds_of_each))

    words = dict.fromkeys(kind.words for kinds in element_kinds for kind in kinds)
    if not words:
        return _Kind(accepts=accepts, words="a sequence")
    elements = () if is_fixed else element_kinds[0]
    return _Kind(accepts=accepts, words=f"a sequence, each {' or '.join(words)}", elements=elements)


def _mapping(hints: Sequence[Any], names: dict[str, Any]) -> _Kind:
    key_kinds, value_kinds = (_kinds_of([hint], names) for hint in hints)

    def accepts(value: object) -> bool:
        if not isinstance(value, Mapping):
            return False
        entries = typing.cast("Mapping[object, object]", value).items()
        return all(
            _is_any(key, key_kinds) and _is_any(entry, value_kinds) for key, entry in entries
        )

    value_words = " or ".join(kind.words for kind in value_kinds)
    if not value_words:
        return _Kind(accepts=accepts, words="a mapping")
    return _Kind(accepts=accepts, words=f"a mapping of names, each to {value_words}")


def _is_any(value: object, kinds: Sequence[_Kind]) -> bool:
    """Whether a value is of one of the kinds, or these are not checked here."""
    return not kinds or any(kind.accepts(value) for kind in kinds)


def _choice(words: Collection[Any]) -> _Kind:
    return _Kind(
        accepts=lambda value: isinstance(value, str | int) and value in words,
        words="one of " + ", ".join(map(str, words)),
    )


def _is_integer(value: object) -> bool:
    """Whether a value counts: tensors and arrays of one integer without a dimension do, too."""
    if isinstance(value, Integral):
        return _is_number(value)
    is_scalar = getattr(value, "ndim", None) == 0
    if not is_scalar or "bool" in str(getattr(value, "dtype", "")):
        return False
    try:
        operator.index(typing.cast(typing.SupportsIndex, value))
    except Exception:  # as each library has it
        return False
    return True


def _is_number(value: object) -> bool:
    if not isinstance(value, Real | Decimal) or isinstance(value, bool | np.bool_):
        return False
    try:
        return not math.isnan(float(value))
    except (OverflowError, ValueError):  # beyond the floats, or a signalling NaN
        return False


def _is_rational(value: object) -> bool:
    return not isinstance(value, bool) and isinstance(value, Rational)


def _is_sequence(value: object) -> bool:
    """Whether a value has elements; it is not asked for them, for loaders draw when they are."""
    if isinstance(value, str | bytes | Mapping) or getattr(value, "ndim", 1) == 0:
        return False
    return isinstance(value, Iterable) or hasattr(type(value), "__getitem__")


_NOTHING = _Kind(accepts=lambda value: value is None, words="None")
_INTEGER = _Kind(accepts=_is_integer, words="an integer")
_NUMBER = _Kind(accepts=_is_number, words="a number")
_NUMBERS = frozenset({_NOTHING, _INTEGER, _NUMBER})
_SIMPLE: dict[Any, _Kind] = {
    None: _NOTHING,
    types.NoneType: _NOTHING,
    bool: _Kind(accepts=lambda value: isinstance(value, bool | np.bool_), words="True or False"),
    int: _INTEGER,
    float: _NUMBER,
    str: _Kind(accepts=lambda value: isinstance(value, str), words="text"),
    bytes: _Kind(accepts=lambda value: isinstance(value, bytes), words="bytes", is_shown=False),
    Fraction: _Kind(accepts=_is_rational, words="a fraction"),
}
_GENERIC: dict[Any, _Kind] = {
    Callable: _Kind(accepts=callable, words="a function"),
    os.PathLike: _Kind(accepts=lambda value: isinstance(value, os.PathLike), words="a path"),
}

_COMMON_NAMES = {**vars(common_types), "Sequence": Sequence, "Mapping": Mapping}
"""Of aliases, wherever they are imported."""
