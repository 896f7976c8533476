"""Run files: TOML tables that become records, so that an unknown key is an error, not silence."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass
from pathlib import Path
from types import NoneType
from typing import Any, Literal, TypeVar, cast, final, get_args, get_origin, get_type_hints

from mezzotint.cli import console
from mezzotint.core.errors import FileFormatError, ParameterError
from mezzotint.core.files import read_text

Table = TypeVar("Table")


@final
@dataclass(frozen=True, kw_only=True)
class RunFormat:
    """How the run files of a verb may be written.

    Arguments:
        plain_keys: dotted names of tables that may be written as one value, and the key that it
            stands for.
        old_keys: dotted keys of before -> those of today, in the same table.
        alternatives: table -> its keys of which only one is there: a change of one takes the
            others away.
    """

    plain_keys: Mapping[str, str]
    old_keys: Mapping[str, str]
    alternatives: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def read_document(path: Path, changes: Sequence[str], form: RunFormat) -> dict[str, Any]:
    """Reads the tables of a run file and changes single values of them.

    Arguments:
        path: of the file.
        changes: "table.key=value", the value as in TOML, or a plain word; "table=value" for a table
            that one value stands for; "table={key = value, ...}" in place of a whole table.
        form: of the verb that the file is for.
    Raises:
        ParameterError: no such file; a change that is not of this form.
        FileFormatError: not TOML.
    """
    if not path.is_file():
        raise ParameterError("run", str(path), "no such file; --example prints one")
    try:
        document = tomllib.loads(read_text(path))
    except tomllib.TOMLDecodeError as error:
        raise FileFormatError(f"{path.name}: not a run file ({error})") from None
    rename_keys(document, form.old_keys)
    for change in changes:
        dotted_name, equals, value_text = change.partition("=")
        current_name = form.old_keys.get(dotted_name.strip(), dotted_name)
        if current_name != dotted_name:
            console.warn(f"{dotted_name.strip()} is now called {current_name}")
        _change(document, f"{current_name}{equals}{value_text}", form)
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
        table: Any = document
        for table_name in table_names:
            table = table.get(table_name, {})
            if not isinstance(table, dict):
                table = {}
        if old_key not in table:
            continue
        current_key = current_name.rpartition(".")[2]
        if current_key in table:
            remedy = f"is now called {current_name}, which is there too"
            raise ParameterError(old_name, table[old_key], remedy)
        table[current_key] = table.pop(old_key)
        console.warn(f"{old_name} is now called {current_name}")


def _change(document: dict[str, Any], change: str, form: RunFormat) -> None:
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
    if dotted_name in form.plain_keys and not isinstance(value, dict):
        table_names.append(last_key)
        last_key = form.plain_keys[dotted_name]
    table: Any = document
    for depth, table_name in enumerate(table_names, start=1):
        inner_table = table.setdefault(table_name, {})
        if not isinstance(inner_table, dict):
            plain_key = form.plain_keys.get(".".join(table_names[:depth]))
            if plain_key is None:
                raise ParameterError("set", change, f"{table_name} is a value, not a table")
            inner_table = {plain_key: inner_table}
            table[table_name] = inner_table
        table = inner_table
    if isinstance(table.get(last_key), dict) and not isinstance(value, dict):
        remedy = f"name a key of this table: {dotted_name}.key=value"
        raise ParameterError("set", change, remedy)
    exclusive_keys = form.alternatives.get(".".join(table_names), ())
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


def record_of(record: type[Table], name: str, values: object, form: RunFormat) -> Table:
    """The record of a table, whose fields are its keys; tables in it become records, too.

    Arguments:
        record: a dataclass.
        name: of the table, dotted; empty for a whole file.
        values: what it holds, or the value that stands for it.
        form: of the run file.

    Raises:
        ParameterError: an unknown key, or a value of another kind.
    """
    if name in form.plain_keys and not isinstance(values, dict):
        values = {form.plain_keys[name]: values}
    if not isinstance(values, dict):
        raise ParameterError(name, values, f"must be a table, such as [{name}]")
    kinds = get_type_hints(record)
    fields: dict[str, Any] = {}
    for key, value in values.items():
        dotted_name = f"{name}.{key}".removeprefix(".")
        if key not in kinds:
            sort = "key" if name else "table"
            raise ParameterError(
                dotted_name, value, f"no such {sort}; there are {', '.join(kinds)}"
            )
        fields[key] = _field(kinds[key], dotted_name, value, form)
    return record(**fields)


def _field(kind: Any, name: str, value: Any, form: RunFormat) -> Any:
    """A value of this kind, or a record; whole numbers are taken for others."""
    if get_origin(kind) is Literal:
        if value not in get_args(kind):
            raise ParameterError(name, value, f"use one of {', '.join(get_args(kind))}")
        return value
    kinds = get_args(kind) or (kind,)
    for record in kinds:
        if is_dataclass(record):
            return record_of(cast("type[Any]", record), name, value, form)
    if float in kinds and type(value) is int:
        return float(value)
    if type(value) not in kinds:
        words = " or ".join(each.__name__ for each in kinds if each is not NoneType)
        raise ParameterError(name, value, f"need a value of type {words}")
    return value
