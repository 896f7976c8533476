"""The errors that Mezzotint raises deliberately: each names the problem, the value and the remedy."""

from __future__ import annotations


class MezzotintError(Exception):
    """Base of every error that this package raises deliberately."""


class ParameterError(MezzotintError, ValueError):
    """A parameter has a value that cannot be used.

    Arguments:
        parameter: the public name of the parameter.
        value: the offending value, shown in the message (shortened when long).
        remedy: what is wrong and what to do about it, in one sentence.
    """

    def __init__(self, parameter: str, value: object, remedy: str) -> None:
        self.parameter = parameter
        self.value = value
        self.remedy = remedy
        shown = value if isinstance(value, str) else repr(value)
        if len(shown) > 120:
            shown = shown[:117] + "..."
        super().__init__(f"{parameter}={shown}: {remedy}")

    def __reduce__(self) -> tuple[type[ParameterError], tuple[str, object, str]]:
        return type(self), (self.parameter, self.value, self.remedy)  # so that other processes can send it back


class StorageError(ParameterError):
    """A file that must survive cannot be written, read or locked: full disk, read-only folder, another process."""


class BudgetError(MezzotintError, ValueError):
    """A release does not fit into the budget; it was not charged and must not happen."""


class FileFormatError(MezzotintError, ValueError):
    """A file is truncated, edited, of an unknown schema, or not ours at all."""


class InfeasibleError(MezzotintError, ValueError):
    """No mechanism satisfies the constraints; the message says by how much they are missed and what would help."""


class MissingExtraError(MezzotintError, ImportError):
    """An optional library is not installed; the message names the extra that provides it."""
