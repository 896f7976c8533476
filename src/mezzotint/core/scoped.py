"""Array accesses that tell the compiler that tables and streams never overlap.

Without that knowledge a loop that stores a code and then reads a table must go one element at a time: the store might
have changed the table. numba has no `restrict` for its arguments (proposed in numba/numba#9108, not merged), so these
intrinsics attach LLVM's alias scopes to each access. When numba offers it, this file can go.
"""

from __future__ import annotations

from typing import Any, cast

from numba import types
from numba.extending import intrinsic

_intrinsic = cast(Any, intrinsic)
_types = cast(Any, types)

_TABLES, _STREAMS = "tables", "streams"


def _scope(module: Any, name: str) -> Any:
    domain = module.add_metadata(["mezzotint"])
    scope = module.add_metadata([name, domain])
    return module.add_metadata([scope])


def _mark(module: Any, access: Any, mine: str, other: str) -> None:
    access.set_metadata("alias.scope", _scope(module, mine))
    access.set_metadata("noalias", _scope(module, other))


def _address(context: Any, builder: Any, array_type: Any, array: Any, index: Any) -> Any:
    return builder.gep(context.make_array(array_type)(context, builder, array).data, [index])


def _reader(mine: str, other: str) -> Any:
    def read(_typing: Any, array: Any, index: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            value = builder.load(_address(context, builder, signature.args[0], *arguments))
            _mark(builder.module, value, mine, other)
            return value

        return array.dtype(array, index), generate

    return read


def _writer(_typing: Any, array: Any, index: Any, value: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        address = _address(context, builder, signature.args[0], *arguments[:2])
        _mark(builder.module, builder.store(arguments[2], address), _STREAMS, _TABLES)
        return context.get_dummy_value()

    return _types.void(array, index, array.dtype), generate


look_up: Any = _intrinsic(_reader(_TABLES, _STREAMS))
"""look_up(table, index): an entry of a contiguous 1-D table that no stream overlaps; index is int64, unchecked."""

take: Any = _intrinsic(_reader(_STREAMS, _TABLES))
"""take(stream, index): an element of a contiguous 1-D input; index is int64, unchecked."""

put: Any = _intrinsic(_writer)
"""put(stream, index, value): stores into a contiguous 1-D output."""
