"""Run files: TOML tables whose keys are taken one by one, so that an unknown key is an error, not
silence.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, final

from mezzotint.cli import console
from mezzotint.core.errors import FileFormatError, ParameterError
from mezzotint.core.files import read_text

Kind = TypeVar("Kind", str, int, float, bool)


TABLES = {
    "train": frozenset({"run", "budget", "method"}),
    "federate": frozenset({"training", "rounds", "privacy", "mechanism", "server", "evaluate"}),
}
"""Tables that the run files of one verb have and those of the other have not."""

OLD_KEYS: Mapping[str, Mapping[str, str]] = {
    "train": {"run.optimizer.lr": "run.optimizer.learning_rate"},
    "federate": {
        "data.clients": "data.population",
        "rounds.clients": "rounds.clients_per_round",
        "training.rate": "training.learning_rate",
        "mechanism.l2_norm": "mechanism.clip_norm",
    },
}
"""Verb -> keys by the names that they had before -> by those of today, in the same tables."""


ALTERNATIVES: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "train": {"data": ("name", "file", "folder")},
    "federate": {},
}
"""Verb -> table -> its keys of which only one is there: a change of one takes the others away."""


def read_document(
    path: Path, changes: Sequence[str], *, verb: str, plain_keys: Mapping[str, str]
) -> dict[str, Any]:
    """Reads the tables of a run file and changes single values of them.

    Arguments:
        path: of the file.
        changes: "table.key=value", the value as in TOML, or a plain word; "table=value" for a table
            that one value stands for; "table={key = value, ...}" in place of a whole table.
        verb: that the file is for.
        plain_keys: dotted names of tables that may be written as one value, and the key that it
            stands for.
    Raises:
        ParameterError: no such file; one for the other verb; a change that is not of this form.
        FileFormatError: not TOML.
    """
    if not path.is_file():
        raise ParameterError("run", str(path), "no such file; --example prints one")
    try:
        document = tomllib.loads(read_text(path))
    except tomllib.TOMLDecodeError as error:
        raise FileFormatError(f"{path.name}: not a run file ({error})") from None
    _refuse_file_of_another_verb(document, path, verb)
    rename_keys(document, OLD_KEYS[verb])
    for change in changes:
        dotted_name, equals, value_text = change.partition("=")
        current_name = OLD_KEYS[verb].get(dotted_name.strip(), dotted_name)
        if current_name != dotted_name:
            console.warn(f"{dotted_name.strip()} is now called {current_name}")
        current_change = f"{current_name}{equals}{value_text}"
        _change(document, current_change, plain_keys, alternatives=ALTERNATIVES[verb])
    return document


def rename_keys(document: dict[str, Any], old_keys: Mapping[str, str]) -> None:
    """Give keys the names of today, in place; each that has an old one is told.

    Arguments:
        document: tables of a run file.
        old_keys: dotted key of before -> dotted key of today, in the same table.

    Raises:
        ParameterError: a key under both names.
    """
    for old_name, current_name in old_keys.items():
        *table_names, old_key = old_name.split(".")
        table = _inner_table(document, table_names)
        if old_key not in table:
            continue
        current_key = current_name.rpartition(".")[2]
        if current_key in table:
            remedy = f"is now called {current_name}, which is there too"
            raise ParameterError(old_name, table[old_key], remedy)
        table[current_key] = table.pop(old_key)
        console.warn(f"{old_name} is now called {current_name}")


def _inner_table(document: dict[str, Any], table_names: Sequence[str]) -> dict[str, Any]:
    """The table of these names inside each other; an empty one where there is none."""
    table: Any = document
    for table_name in table_names:
        table = table.get(table_name, {})
        if not isinstance(table, dict):
            return {}
    return table


def _refuse_file_of_another_verb(document: Mapping[str, Any], path: Path, verb: str) -> None:
    if TABLES[verb] & document.keys():
        return
    for described_verb, table_names in TABLES.items():
        if table_names & document.keys():
            remedy = f"it describes a run of mezzotint {described_verb}; give it to that verb"
            raise ParameterError("run", str(path), remedy)


def _change(
    document: dict[str, Any],
    change: str,
    plain_keys: Mapping[str, str],
    *,
    alternatives: Mapping[str, tuple[str, ...]],
) -> None:
    """Sets one value of a document; other keys of its table stay, but for alternatives to it."""
    name, equals, value_text = change.partition("=")
    dotted_name = name.strip()
    *table_names, last_key = dotted_name.split(".")
    if not equals or not last_key or not all(table_names):
        raise ParameterError("set", change, "write table.key=value")
    value = toml_value(value_text.strip())
    if isinstance(value, str) and value.startswith("{"):
        remedy = "is no table of TOML: write table={key = value, ...}, numbers as 0.2"
        raise ParameterError("set", change, remedy)
    if dotted_name in plain_keys and not isinstance(value, dict):
        table_names.append(last_key)
        last_key = plain_keys[dotted_name]
    table: Any = document
    for depth, table_name in enumerate(table_names, start=1):
        inner_table = table.setdefault(table_name, {})
        if not isinstance(inner_table, dict):
            plain_key = plain_keys.get(".".join(table_names[:depth]))
            if plain_key is None:
                raise ParameterError("set", change, f"{table_name} is a value, not a table")
            inner_table = {plain_key: inner_table}
            table[table_name] = inner_table
        table = inner_table
    if isinstance(table.get(last_key), dict) and not isinstance(value, dict):
        remedy = f"name a key of this table: {dotted_name}.key=value"
        raise ParameterError("set", change, remedy)
    exclusive_keys = alternatives.get(".".join(table_names), ())
    if last_key in exclusive_keys:
        for other_key in exclusive_keys:
            table.pop(other_key, None)
    table[last_key] = value


def toml_value(text: str) -> Any:
    """The value that TOML reads from this text; the text itself if it is none."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


@final
class Section:
    """A table of a run file.

    Arguments:
        name: of the table, dotted; empty for the whole file.
        values: what it holds.
    """

    def __init__(self, name: str, values: Mapping[str, Any]) -> None:
        self._name = name
        self._values = dict(values)
        self._taken: set[str] = set()

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def parameter(self, key: str) -> str:
        """The dotted name of a key."""
        if not self._name:
            return key
        return f"{self._name}.{key}"

    def section(self, key: str, *, plain: str | None = None) -> Section:
        """A table inside; empty where there is none.

        Arguments:
            plain: the key that a value in place of a table stands for; None where it must be a
                table.
        """
        self._taken.add(key)
        values = self._values.get(key, {})
        if plain is not None and not isinstance(values, dict):
            values = {plain: values}
        if not isinstance(values, dict):
            raise ParameterError(self.parameter(key), values, "must be a table")
        return Section(self.parameter(key), values)

    def take_any(self, key: str, default: Any = None) -> Any:
        """The value of a key, of whatever kind."""
        self._taken.add(key)
        return self._values.get(key, default)

    def take(self, key: str, kind: type[Kind], default: Any = None) -> Any:
        """The value of a key, of a kind; whole numbers are taken for others.

        Raises:
            ParameterError: a value of another kind.
        """
        self._taken.add(key)
        if key not in self._values:
            return default
        value = self._values[key]
        accepted_types: tuple[type, ...] = (kind,)
        if kind is float:
            accepted_types = (int, float)
        if type(value) not in accepted_types:
            raise ParameterError(self.parameter(key), value, f"must be of kind {kind.__name__}")
        return kind(value)

    def choose(self, key: str, known: Sequence[str], default: str | None = None) -> str:
        """The value of a key, one of those known."""
        value = self.take(key, str, default)
        if value not in known:
            raise ParameterError(self.parameter(key), value, f"use one of {', '.join(known)}")
        return value

    def finish(self) -> None:
        """Raises ParameterError for a key that nobody took."""
        for key, value in self._values.items():
            if key in self._taken:
                continue
            taken_keys = ", ".join(sorted(self._taken)) or "none"
            remedy = f"has no use here; known: {taken_keys}"
            raise ParameterError(self.parameter(key), value, remedy)
