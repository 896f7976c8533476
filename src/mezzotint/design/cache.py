"""`design.cache`: designs on demand. The first request solves, every later one looks up."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from typing import Any

import numpy as np

from mezzotint.core.errors import ParameterError
from mezzotint.design.optimal import optimal
from mezzotint.design.problem import finite
from mezzotint.design.result import DesignResult

_CAPACITY = 4096
_designs: OrderedDict[Any, DesignResult] = OrderedDict()
_lock = threading.Lock()


def _token(value: Any) -> Any:
    """Something hashable that is equal for equal problems: arrays by content, distributions by their parameters."""
    if value is None or isinstance(value, str | int | float):
        return (type(value).__name__, value)
    if isinstance(value, np.generic):
        return _token(value.item())
    frozen = getattr(value, "dist", None)
    if frozen is not None and hasattr(value, "args"):
        return (type(frozen).__name__, frozen.name, value.args, tuple(sorted(value.kwds.items())))
    array = np.ascontiguousarray(value, dtype=np.float64)
    return (array.shape, hashlib.sha256(array.tobytes()).digest())


def cache(
    epsilon: float = 1.0, *, bits: int | None = None, lower: float = -1.0, upper: float = 1.0, **options: Any
) -> DesignResult:
    """`optimal`, remembered: a run can ask for (bits, range, epsilon) as it goes.

    Arguments:
        epsilon, lower, upper: as in `optimal`.
        bits: levels = 2**bits; or give `levels` among the options.
        options: everything else that `optimal` takes.

    Returns: the same `DesignResult` object for the same problem; it is frozen, so sharing it is safe.

    Raises: as `optimal`; ParameterError when bits and levels are both given.

    Guarantees: equal problems are solved once per process (up to 4096 of them; then the least recently used is
        forgotten). Arrays count by content, frozen distributions by family and parameters. Threads may share it.
    Edge cases: a failure is not remembered.
    """
    if bits is not None:
        if "levels" in options:
            raise ParameterError("bits", bits, "give bits or levels, not both")
        if isinstance(bits, bool) or not isinstance(bits, int) or not 1 <= bits <= 16:
            raise ParameterError("bits", bits, "need 1 to 16 bits")
        options["levels"] = 2**bits
    span = (finite("epsilon", epsilon), finite("lower", lower), finite("upper", upper))
    key = (*span, *((name, _token(options[name])) for name in sorted(options)))
    with _lock:
        known = _designs.get(key)
        if known is not None:
            _designs.move_to_end(key)
            return known
    result = optimal(epsilon, lower=lower, upper=upper, **options)
    with _lock:
        _designs[key] = result
        while len(_designs) > _CAPACITY:
            _designs.popitem(last=False)
    return result


def clear_cache() -> None:
    """Forgets every design."""
    with _lock:
        _designs.clear()
