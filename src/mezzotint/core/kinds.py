"""The check at every public function and record: arguments are of the kinds that annotations name.

What a number must fulfil beyond being one is checked where it is used. Arrays and values of other
libraries are checked there, too.
"""

from __future__ import annotations

import ast
import operator
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cache, wraps
from inspect import Parameter, isclass, signature, unwrap
from itertools import chain
from numbers import Rational, Real
from os import PathLike, fspath
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypeGuard, TypeVar, Union, cast, final, get_args, get_origin

from mezzotint.core import types as common_types
from mezzotint.core.errors import ParameterError, as_integer, as_number, as_scalar

Function = Callable[..., Any]
Entry = TypeVar("Entry", bound=Function)
Names = Mapping[str, Any]


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


Elements = list[object] | tuple[object, ...]

Kinds = tuple[_Kind, ...]
"""Those that an annotation allows, one of them; none where it is not checked here."""


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
    name = entry.__name__
    if not isclass(entry):
        return cast(Entry, _checking(entry, name))
    record: Any = entry
    record.__init__ = _checking(record.__init__, name)
    return record


_BY_PLACE = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


def _checking(function: Function, name: str) -> Function:
    parameters = signature(function).parameters
    places: list[str] = []
    keywords: list[str] = []
    required: list[str] = []
    has_more_places = False
    for parameter in parameters.values():
        if parameter.kind in _BY_PLACE:
            places.append(parameter.name)
        elif parameter.kind is Parameter.KEYWORD_ONLY:
            keywords.append(parameter.name)
        else:
            has_more_places |= parameter.kind is Parameter.VAR_POSITIONAL
            continue
        if parameter.default is Parameter.empty:
            required.append(parameter.name)

    @cache
    def kinds() -> dict[str, Kinds]:  # at the first call, when all names are there
        namespace = getattr(unwrap(function), "__globals__")  # noqa: B009
        allowed: dict[str, Kinds] = {}
        for parameter in parameters.values():
            annotation = str(parameter.annotation)
            if parameter.name in places + keywords:
                allowed[parameter.name] = _allowed(annotation, namespace)
            elif annotation.startswith("Unpack["):
                allowed |= _options(annotation, namespace)
        return allowed

    @wraps(function)
    def checking(*values: Any, **options: Any) -> Any:
        surplus = values[len(places) :]
        if surplus and keywords and not has_more_places:
            _refuse_by_place(keywords, surplus)
        placed = dict(zip(places, values, strict=False))
        for parameter_name in required:
            # Names of before, and names that it never had, are the function's own to judge.
            is_given = parameter_name in placed or parameter_name in options
            if not is_given and options.keys() <= parameters.keys():
                needed = [word for word in required if word != "self"]
                remedy = f"is missing; {name} needs {', '.join(needed)}"
                raise ParameterError(parameter_name, None, remedy)
        for parameter_name, allowed in kinds().items():
            # An option may have the name of a place that has none.
            for arguments in (placed, options):
                if allowed and parameter_name in arguments:
                    value = arguments[parameter_name]
                    arguments[parameter_name] = _checked(parameter_name, value, allowed)
        return function(*placed.values(), *surplus, **options)

    return checking


def _read(value: object, kinds: Kinds) -> object:
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
        shown = "..."
        if _is_short(value):
            shown = repr(value)
        named_values.append(f"{name}={shown}")
    remedy = f"give it by name: {', '.join(named_values)}"
    raise ParameterError(keywords[0], _shown(surplus[0]), remedy)


def _is_short(value: object) -> bool:
    return value is None or isinstance(value, Real | str)


def _shown(value: object) -> object:
    """What messages show of a value: of one that may be long, or a key, its class."""
    if _is_short(value):
        return value
    return type(value).__name__


def _checked(name: str, value: object, allowed: Kinds) -> object:
    plain_value = _read(value, allowed)
    if plain_value is not _REFUSED:
        return plain_value
    _check_elements(name, value, allowed)
    needed = [kind for kind in allowed if kind is not _NOTHING]
    if _NUMBER in allowed and _FRACTION in allowed:
        needed.remove(_FRACTION)
    remedy = f"need {_words_of(needed)}"
    shown = type(value).__name__
    if all(kind.is_shown for kind in allowed):
        shown = _shown(value)
    if isinstance(value, _UNORDERED) and "a sequence" in remedy:
        remedy += "; make a list, in the order that is meant"
    raise ParameterError(name, shown, remedy)


def _check_elements(name: str, value: object, allowed: Kinds) -> None:
    """Raises ParameterError for the first element at fault, of a sequence."""
    if not _is_sequence(value) or isinstance(value, _UNORDERED):
        return
    for kind in allowed:
        if kind.elements:
            for index, element in enumerate(_elements(value) or ()):
                _checked(f"{name}[{index}]", element, kind.elements)


# Annotations --------------------------------------------------------------------------------------


def _allowed(annotation: str, namespace: Names) -> Kinds:
    """The kinds that an annotation names; none where it names one that is not checked here."""
    names = {**_COMMON_NAMES, **namespace}
    hints: list[Any] = []
    try:
        expression = ast.parse(annotation, mode="eval")
        # Piece by piece, for names that type checkers alone import have no value.
        for piece in _pieces(expression.body):
            source = ast.unparse(piece)
            hints.append(eval(source, names))
    except (SyntaxError, NameError, AttributeError, TypeError):
        return ()
    return _kinds_of(hints, names)


def _options(annotation: str, namespace: Names) -> dict[str, Kinds]:
    """The kinds of the options that `**options: Unpack[Record]` takes."""
    record_name = annotation.removeprefix("Unpack[").removesuffix("]")
    record = namespace[record_name]
    module = sys.modules[record.__module__]
    record_namespace = vars(module)
    allowed: dict[str, Kinds] = {}
    for name, hint in record.__annotations__.items():
        allowed[name] = _allowed(hint.__forward_arg__, record_namespace)
    return allowed


def _pieces(node: ast.expr) -> Iterable[ast.expr]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        yield from _pieces(node.left)
        yield from _pieces(node.right)
    else:
        yield node


def _kinds_of(hints: Iterable[Any], names: Names) -> Kinds:
    """In the order of the annotation, for the first that takes a value makes it plain; () where
    nothing is checked.
    """
    kinds: list[_Kind] = []
    for hint in hints:
        if get_origin(hint) in (UnionType, Union):
            kinds += _kinds_of(get_args(hint), names) or (_ANYTHING,)
        elif isinstance(hint, str):  # an alias
            kinds += _allowed(hint, names) or (_ANYTHING,)
        else:
            kinds.append(_kind_of(hint, names))
    if _NUMBER in kinds:  # a float stays one where both are allowed
        kinds = [kind for kind in kinds if kind is not _INTEGER]
    if _FRACTION in kinds:  # and a fraction, which would be a number as well, is exact
        kinds.remove(_FRACTION)
        kinds.insert(0, _FRACTION)
    if all(kind is _ANYTHING for kind in kinds):
        return ()
    return tuple(kinds)


def _kind_of(hint: Any, names: Names) -> _Kind:
    origin = get_origin(hint)
    if hint in _SIMPLE:
        return _SIMPLE[hint]
    if origin is Literal:
        return _choice(get_args(hint))
    if origin in (Sequence, Iterable, list, tuple):
        return _sequence(origin, get_args(hint), names)
    if origin in (Mapping, dict):
        return _mapping(get_args(hint), names)
    if origin in _GENERIC:
        return _GENERIC[origin]
    is_class = origin is None and isinstance(hint, type)
    is_protocol = getattr(hint, "_is_protocol", False)
    if not is_class or is_protocol or hint in (object, Any):
        return _ANYTHING
    return _instance(hint, f"an object of the class {hint.__name__}")


def _instance(classes: type | tuple[type, ...], words: str, **options: Any) -> _Kind:
    def read(value: object) -> object:
        if isinstance(value, classes):
            return value
        return _REFUSED

    return _Kind(read=read, words=words, **options)


def _words_of(kinds: Iterable[_Kind]) -> str:
    words = dict.fromkeys(kind.words for kind in kinds)
    return " or ".join(words)


def _sequence(origin: Any, hints: Sequence[Any], names: Names) -> _Kind:
    """Sequences with their elements, also those of arrays, series and ranges."""
    element_kinds = [_kinds_of([hint], names) for hint in hints if hint is not ...]
    is_fixed = origin is tuple and ... not in hints
    unordered = () if origin is Iterable else _UNORDERED

    def read(value: object) -> object:
        if not _is_sequence(value) or isinstance(value, unordered):
            return _REFUSED
        if origin is Iterable or not any(element_kinds):  # which may draw when they are asked
            return value
        elements = _elements(value)
        if elements is None:
            return _REFUSED
        kinds_of_each = element_kinds
        if not is_fixed:
            kinds_of_each = element_kinds * len(elements)
        if len(elements) != len(kinds_of_each):
            return _REFUSED
        plain_elements = list(map(_read, elements, kinds_of_each))
        if any(element is _REFUSED for element in plain_elements):
            return _REFUSED
        is_tuple = isinstance(elements, tuple)
        is_plain = all(map(operator.is_, elements, plain_elements))
        if is_plain and (is_tuple or origin is not tuple):
            return elements
        if is_tuple or origin is tuple:
            return tuple(plain_elements)
        return plain_elements

    all_kinds = list(chain.from_iterable(element_kinds))
    if not all_kinds:
        return _Kind(read=read, words="a sequence")
    return _Kind(
        read=read,
        words=f"a sequence, each {_words_of(all_kinds)}",
        elements=() if is_fixed else element_kinds[0],
    )


def _elements(value: object) -> Elements | None:
    """The elements of a sequence of any library; None of one that does not give them."""
    if isinstance(value, list | tuple):
        return cast(Elements, value)
    rows: Any = value
    try:
        if hasattr(rows, "columns"):  # a frame, of which pandas gives the names of the columns
            rows = rows.to_numpy()
        return list(rows)
    except Exception:  # as each library has it
        return None


def _mapping(hints: Sequence[Any], names: Names) -> _Kind:
    key_kinds, value_kinds = (_kinds_of([hint], names) for hint in hints)

    def read(value: object) -> object:
        if not _is_mapping(value):
            return _REFUSED
        entries: dict[object, object] = {}
        for key, entry in value.items():
            plain_key = _read(key, key_kinds)
            plain_entry = _read(entry, value_kinds)
            if plain_key is _REFUSED or plain_entry is _REFUSED:
                return _REFUSED
            entries[plain_key] = plain_entry
        return entries

    if not value_kinds:
        return _Kind(read=read, words="a mapping")
    value_words = _words_of(value_kinds)
    return _Kind(read=read, words=f"a mapping of names, each to {value_words}")


def _choice(words: Collection[Any]) -> _Kind:
    def read(value: object) -> object:
        if isinstance(value, str | int) and value in words:
            return value
        return _REFUSED

    listed_words = ", ".join(map(str, words))
    return _Kind(read=read, words=f"one of {listed_words}")


def _read_integer(value: object) -> object:
    if as_number(value) is None:
        return _REFUSED
    return _taken(as_integer(value))


def _read_number(value: object) -> object:
    return _taken(as_number(value))


def _taken(number: float | None) -> object:
    """What a kind reads: a number, or `_REFUSED` in place of None."""
    if number is None:
        return _REFUSED
    return number


def _read_fraction(value: Any) -> object:
    if isinstance(value, Decimal) and value.is_finite():
        return Fraction(value)
    if isinstance(value, bool) or not isinstance(value, Rational):
        return _REFUSED
    return value


def _read_bytes(value: object) -> object:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(cast(bytes, value))
    return _REFUSED


def _read_path(value: object) -> object:
    if not isinstance(value, PathLike):
        return _REFUSED
    path = fspath(cast("PathLike[Any]", value))
    if isinstance(path, str):
        return Path(path)
    return _REFUSED


def _read_function(value: object) -> object:
    if callable(value):
        return value
    return _REFUSED


def _is_mapping(value: object) -> TypeGuard[Mapping[object, object]]:
    return isinstance(value, Mapping)


def _is_sequence(value: object) -> bool:
    """Whether a value has elements; it is not asked for them, for loaders draw when they are."""
    is_scalar = getattr(value, "ndim", 1) == 0
    if is_scalar or isinstance(value, str | bytes | Mapping):
        return False
    return isinstance(value, Iterable) or hasattr(type(value), "__getitem__")


_UNORDERED = (Mapping, set, frozenset)
"""Their order may differ from what is meant, and that of sets from process to process."""

_REFUSED = object()
"""What a kind reads in a value of another kind."""

_ANYTHING = _Kind(read=lambda value: value, words="what is checked where it is used")
_NOTHING = _instance(NoneType, "None")
_INTEGER = _Kind(read=_read_integer, words="an integer")
_NUMBER = _Kind(read=_read_number, words="a number")
_FRACTION = _Kind(read=_read_fraction, words="a fraction")
_SIMPLE: dict[Any, _Kind] = {
    None: _NOTHING,
    NoneType: _NOTHING,
    bool: _instance(bool, "True or False"),
    int: _INTEGER,
    float: _NUMBER,
    str: _instance(str, "text"),
    bytes: _Kind(read=_read_bytes, words="bytes", is_shown=False),
    Fraction: _FRACTION,
}
_GENERIC: dict[Any, _Kind] = {
    Callable: _Kind(read=_read_function, words="a function"),
    PathLike: _Kind(read=_read_path, words="a path"),
}

_COMMON_NAMES = {**vars(common_types), "Sequence": Sequence, "Mapping": Mapping}
"""Of aliases, wherever they are imported."""
