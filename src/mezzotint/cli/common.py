"""What the verbs share: options, parsing of numbers, JSON, consoles, progress, messages in the words of who typed.

Tables on terminals of any width: no number is cut, no heading occurs twice.
"""

from __future__ import annotations

import json
import math
import os
import re
import sys
import textwrap
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO, TypeAlias, final

import typer
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.table import Table as RichTable
from rich.text import Text
from typer.models import OptionInfo

import mezzotint as mz
from mezzotint.core.document import parse_document
from mezzotint.core.errors import FileFormatError, InfeasibleError, MezzotintError, ParameterError
from mezzotint.core.files import read_text, refuse_existing, replacing
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.records import Json, JsonObject, Progress, above, plain

if TYPE_CHECKING:
    import click
    import numpy as np
    import numpy.typing as npt
    from matplotlib.figure import Figure as Drawing
    from rich.progress import Progress as Bars
    from rich.progress import ProgressColumn

    from mezzotint.families.noise import IntegerNoise


ALIASES: dict[str, dict[str, str]] = {
    "account": {"trust": "view", "dimension": "coordinates", "clip_norm": "l2_norm"},
    "advise": {"dimension": "dim", "epsilon": "target_epsilon"},
    "estimate": {
        "source": "sources",
        "counts": "sources",
    },
    "federate": {"path": "out"},
    "ledger": {"path": "file"},
    "privatize": {
        "path": "ledger",
        "users": "memoise_by",
        "key": "key_file",
        "rng": "seed",
    },
    "report": {"source": "file", "counts": "file", "path": "file"},
    "train": {"path": "out"},
    "gradients": {"distributions": "distribution"},
}
"""Verb -> parameters of the library and what this verb calls them, where that differs."""

VALUES: dict[str, dict[str, str]] = {
    "account": {"secure_sum": "sum", "shuffler": "shuffled"},
    "advise": {"secure_sum": "sum"},
}
"""Verb -> values of the library and how they are typed, where that differs."""

_COMMAND: ContextVar[object] = ContextVar("command", default=None)

_TOLD = re.compile(r"""\b\w+=(?:"[^"]*"|'[^']*'|[^\s(]*) \((--[^)]+)\)""")
_SETTING = re.compile(r"""(?<![-\w])([a-z]\w*)=("[^"]*"|'[^']*'|[^\s,;:()]*)""")
_WORD = re.compile(r"(?<![-\w/.])[a-z][a-z0-9]*(?:_[a-z0-9]+)+(?![\w=/.])")


@contextmanager
def command_line(entered: object, words: Sequence[str]) -> Iterator[None]:
    """Messages speak of the verb among these words of a command line.

    Arguments:
        entered: the whole program, as the parser has it.
    """
    for word in words:
        entered = getattr(entered, "commands", {}).get(word, entered)
    token = _COMMAND.set(entered)
    try:
        yield
    finally:
        _COMMAND.reset(token)


def refuse_repeats(command: Any) -> None:
    """Make every command refuse an option of one value that is given twice: the parser would keep the last one."""
    for inner in getattr(command, "commands", {}).values():
        refuse_repeats(inner)
    parse = command.parse_args

    def parse_once(context: Any, words: list[str]) -> list[str]:
        order = command.make_parser(context).parse_args(args=list(words))[2]
        for option in command.params:
            several = option.multiple or option.nargs != 1 or getattr(option, "is_flag", False)
            count = sum(each is option for each in order)
            if count > 1 and option.param_type_name == "option" and not several:
                raise ParameterError(option.name, f"{count} times", "takes one value; give it once")
        return parse(context, words)

    command.parse_args = parse_once


def typed(text: str) -> str:
    """A message of the library with options as they are typed: max_level=3 is --max-level=3, other=True --other."""
    text = _TOLD.sub(r"\1", text)
    return _WORD.sub(
        lambda found: _word(_option(found[0])) or found[0], _SETTING.sub(_setting, text)
    )


def complaint(error: MezzotintError) -> str:
    """The line that an error becomes; values stand as they were given."""
    if isinstance(error, FileFormatError):  # speaks of what is in a file
        return str(error)
    if not isinstance(error, ParameterError):
        return typed(str(error))
    name, rest = re.match(r"(\w*)(.*)", error.parameter, re.DOTALL).groups()  # type: ignore[union-attr]
    value = str(error).removeprefix(f"{error.parameter}=").removesuffix(f": {error.remedy}")
    if isinstance(error.value, str) and value == repr(error.value):
        value = error.value  # in a shell everything is text
    option = _option(name, aliases=not isinstance(error.value, bool))
    shown = "" if option is not None and getattr(option, "is_flag", False) else f"{rest}={value}"
    shown = " is not given" if error.value is None else shown
    return f"{_word(option) or name}{shown}: {typed(error.remedy)}"


@contextmanager
def renamed(**names: str) -> Iterator[None]:
    """Around a call whose parameters stand for others of the verb: renamed(epsilon="report_epsilon")."""
    try:
        yield
    except ParameterError as error:
        raise ParameterError(
            names.get(error.parameter, error.parameter), error.value, error.remedy
        ) from error
    except InfeasibleError as error:
        said = re.sub(
            r"(?<!\w)(\w+)=", lambda found: f"{names.get(found[1], found[1])}=", str(error)
        )
        raise InfeasibleError(said) from error


def _option(name: str, *, aliases: bool = True) -> click.Parameter | None:
    """The option or argument of the verb that stands for a parameter of the library; None where there is none."""
    command = _COMMAND.get()
    known = ALIASES.get(getattr(command, "name", None) or "", {}) if aliases else {}
    name = known.get(name, name)
    for param in getattr(command, "params", ()):
        if name == param.name or f"--{name.replace('_', '-')}" in param.opts:
            return param
    return None


def _word(option: click.Parameter | None) -> str:
    """How an option or argument is typed; empty for None."""
    if option is None:
        return ""
    return option.opts[0] if option.param_type_name == "option" else str(option.name).upper()


def _setting(found: re.Match[str]) -> str:
    name, value = found.groups()
    option = _option(name)
    if option is None or option.param_type_name != "option":
        return found[0]
    bare = value[1:-1] if value[:1] in ("'", '"') else value
    values = VALUES.get(getattr(_COMMAND.get(), "name", ""), {})
    flag = getattr(option, "is_flag", False)
    return option.opts[0] if flag or not bare else f"{option.opts[0]}={values.get(bare, bare)}"


def option(
    text: str, *names: str, metavar: str | None = None, least: int | None = None
) -> OptionInfo:
    """An option of a verb, for `Annotated`.

    Arguments:
        text: its help.
        names: as it is typed; by default the parameter's name. A flag must give its name, or it gets a --no-... too.
    """
    return typer.Option(*names, help=text, metavar=metavar, min=least)


AsJson = Annotated[bool, option("Print a single JSON object on standard output.", "--json")]
Overwrite = Annotated[bool, option("Replace the output if it exists.", "--overwrite")]
Confidence = Annotated[float, option("Confidence of each interval, in (0, 1).")]
Address = Annotated[
    str | None, option("Address of a Ray cluster; default: a cluster on this machine.")
]
Lower = Annotated[float, option("Smallest input, in data units; smaller inputs are clipped to it.")]
Upper = Annotated[float, option("Largest input, in data units; larger inputs are clipped to it.")]
PriorOption = Annotated[
    str | None,
    option(
        "Public column distributed like the inputs; default: uniform. A prior from private data is a release.",
        metavar="FILE:COLUMN",
    ),
]

INTEGER_NOISES: dict[str, Callable[[float], IntegerNoise]] = {
    "discrete Gaussian": lambda deviation: mz.families.discrete_gaussian(sigma=deviation),
    "Skellam": lambda deviation: mz.families.skellam(variance=deviation**2),
}
"""Noise of integers by its standard deviation."""

SEEDED = "drawn from a seed: NOT PRIVATE"

PRIOR_WARNING = (
    "the design depends on the prior; if that column is private, publishing the mechanism reveals something about "
    "it that epsilon does not cover"
)


Options: TypeAlias = JsonObject
"""Options by name, as a verb was given them or as a function of the library takes them; their declarations say what."""


def output() -> Console:
    """Console for results."""
    return Console(width=_width(sys.stdout))


def notices() -> Console:
    """Console on standard error."""
    return Console(stderr=True, width=_width(sys.stderr))


def _width(stream: TextIO) -> int | None:
    """Wide enough for tables where it is not a terminal and COLUMNS asks for nothing else; None leaves it to rich."""
    return None if stream.isatty() or "COLUMNS" in os.environ else 120


def say(text: str, *, style: str | None = None, on: Console | None = None) -> None:
    """Print sentences, wrapped between words on a terminal or to the width that COLUMNS gives.

    Pipes and files get the lines unwrapped. Paths and long words are never broken.

    Arguments:
        style: as rich has it.
        on: the console; standard output by default.
    """
    console = on or output()
    if console.is_terminal or "COLUMNS" in os.environ:
        whole = textwrap.TextWrapper(console.width, break_long_words=False, break_on_hyphens=False)
        text = "\n".join(whole.fill(line) for line in text.split("\n"))
    console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)


def note(text: str) -> None:
    """Print a remark on standard error, unwrapped unless that is a terminal."""
    say(f"mezzotint: {text}", on=notices())


def warn(text: str) -> None:
    """Print a warning, as `note`."""
    note(f"warning: {typed(text)}")


def show(
    facts: JsonObject,
    as_json: bool,
    picture: Callable[[], RenderableType | list[RenderableType]],
    *,
    style: str | None = None,
    on: Console | None = None,
) -> None:
    """Print the results of a verb on standard output.

    Arguments:
        facts: what --json prints as one object; infinities and NaN, which JSON lacks, become text.
        picture: makes the text, the table, or a list of both.
        style, on: of the text, as in `say`.
    """
    if as_json:
        print(json.dumps(plain(facts), allow_nan=False))
        return
    made = picture()
    for part in made if isinstance(made, list) else [made]:
        if isinstance(part, str):
            say(part, style=style, on=on)
        else:
            output().print(part)


def parse_numbers(text: str, *, parameter: str) -> list[float]:
    """Comma-separated numbers, such as -3,-0.5,0.5,3."""
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise ParameterError(
            parameter, text, f"give numbers separated by commas: --{parameter}=-3,-0.5,0.5,3"
        ) from None


def parse_levels(text: str) -> int | list[float]:
    """A number of levels (4), or the levels themselves (-3,-0.5,0.5,3)."""
    if "," in text:
        return parse_numbers(text, parameter="levels")
    try:
        return int(text)
    except ValueError:
        remedy = "give a number of levels (4) or the levels themselves (--levels=-3,-0.5,0.5,3)"
        raise ParameterError("levels", text, remedy) from None


def read_prior(prior: str | None, lower: float, upper: float) -> npt.NDArray[np.floating] | None:
    """The sample that --prior names, or None for uniform; warns about private data and about clipping."""
    if prior is None:
        return None
    warn(PRIOR_WARNING)
    values = read_public(prior, parameter="prior")
    assert values is not None
    outside = int(((values < lower) | (values > upper)).sum())
    if outside:
        beyond = f"outside --lower {lower:g} .. --upper {upper:g}"
        warn(f"{outside:,} of the prior's {values.size:,} values lie {beyond} and are clipped")
    return values


def read_public(named: str | None, *, parameter: str) -> npt.NDArray[np.floating] | None:
    """The public sample that an option names as FILE:COLUMN; None where it is not given."""
    if named is None:
        return None
    path, separator, column = named.rpartition(":")
    if not separator or not path or not column:
        raise ParameterError(parameter, named, "give FILE:COLUMN, as in public.parquet:age")
    try:
        with busy("reading the sample"):
            return mz.collect.read_values(path, column=column)
    except ParameterError as error:  # of the file or of the column: both were typed here
        raise ParameterError(parameter, named, error.remedy) from None


TABLE_ENDINGS = (".csv", ".parquet", ".md", ".html")


def write_table(rows: Sequence[Json], path: Path, *, overwrite: bool, parameter: str) -> None:
    """Writes rows of plain values as a table, in the format that the name's ending says.

    Arguments:
        rows: objects; lists and objects in their cells become text.
    """
    table = [
        {name: _plain_cell(value) for name, value in row.items()}
        for row in rows
        if isinstance(row, Mapping)
    ]
    names = list(dict.fromkeys(name for row in table for name in row))
    with replacing(path, overwrite=overwrite, parameter=parameter) as temporary:
        if path.suffix.lower() == ".parquet":
            import pyarrow as pa
            import pyarrow.parquet as pq

            columns = {name: [row.get(name) for row in table] for name in names}
            pq.write_table(pa.table(columns), temporary)
            return
        Path(temporary).write_text(_as_text(names, table, path.suffix.lower()), encoding="utf-8")


def _plain_cell(value: Json) -> Json:
    return json.dumps(value) if isinstance(value, (list, tuple, Mapping)) else value


def _as_text(names: Sequence[str], table: Sequence[Mapping[str, Json]], ending: str) -> str:
    cells = [["" if row.get(name) is None else str(row[name]) for name in names] for row in table]
    if ending == ".csv":
        import csv
        import io

        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([names, *cells])
        return text.getvalue()
    if ending == ".md":
        lines = [names, ["---"] * len(names), *cells]
        escaped = ([cell.replace("|", "\\|") for cell in line] for line in lines)
        return "".join(f"| {' | '.join(line)} |\n" for line in escaped)
    import html

    head = "".join(f"<th>{html.escape(name)}</th>" for name in names)
    body = (
        f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in line)}</tr>" for line in cells
    )
    return f"<table>\n<tr>{head}</tr>\n{chr(10).join(body)}\n</table>\n"


def write_drawing(drawing: Drawing, path: Path, *, overwrite: bool, parameter: str) -> None:
    """Saves a drawing whole, in the format that the name's ending says."""
    with replacing(path, overwrite=overwrite, parameter=parameter) as temporary:
        drawing.savefig(temporary, format=path.suffix.lower().removeprefix("."))


def refuse_given(options: Mapping[str, object], remedy: str) -> None:
    """Raises ParameterError for the first given option: none of them applies here."""
    for name, value in options.items():
        if value:
            raise ParameterError(name, value if value is True else str(value), remedy)


def refuse_outputs(*endings: str, overwrite: bool, **files: Path | None) -> None:
    """Raises ParameterError for the first output file that cannot be written: before the work, not after it.

    Arguments:
        endings: of their names, as their format has it; none for any.
    """
    for name, file in files.items():
        if file is None:
            continue
        if not file.name.lower().endswith(endings or ""):
            remedy = f"choose a name that ends in {' or '.join(endings)}, the format of this file"
            raise ParameterError(name, str(file), remedy)
        refuse_existing(file, overwrite=overwrite, parameter=name)


def picked(thing: object, *names: str) -> JsonObject:
    """These attributes of an object, by name."""
    return {name: getattr(thing, name) for name in names}


def load_mechanism(path: Path, *, parameter: str = "mechanism") -> Mechanism:
    """Reads a mechanism file; the error for a missing file names its parameter."""
    if not path.is_file():
        raise ParameterError(
            parameter, str(path), "no such file; make one with: mezzotint design --out m.json"
        )
    return Mechanism.load(path)


def best_on_even_levels(
    count: int, reaches: Iterable[float], design: Callable[[list[float]], mz.design.DesignResult]
) -> Mechanism:
    """The design of least error on evenly spaced levels that reach this far; raises the first error if all fail."""
    found: list[Mechanism] = []
    refused: list[InfeasibleError] = []
    for reach in reaches:
        try:
            found.append(
                design([reach * (2 * level / (count - 1) - 1) for level in range(count)]).mechanism
            )
        except InfeasibleError as error:
            refused.append(error)
    if not found:
        raise refused[0]
    return min(found, key=lambda mechanism: mechanism.mse())


def table_for_shares(epsilon: float, lower: float, upper: float, *, bins: int) -> str:
    """The command that designs a table for the shares of equal bins, and for quantiles to about a bin."""
    return (
        f"mezzotint design --loss cdf --epsilon {epsilon:.4g} --lower={lower:.12g} --upper={upper:.12g} "
        f"--knots {bins + 1} --levels {2 * bins} --out shares.json"
    )


def each(claim: mz.privacy.Claim | None) -> str:
    """The cost of one report, to which observer, and whether that was checked."""
    return SEEDED if claim is None else f"epsilon {above(claim.epsilon)} each ({claim.basis})"


def cost_of(claim: mz.privacy.Claim | None, seeded: bool | None) -> str:
    """The cost of each report behind an estimate, as far as the files record it."""
    unsure = claim is not None and seeded is None
    return each(claim) + (
        " unless they were drawn from a seed (the files do not say)" if unsure else ""
    )


def bits(count: int) -> str:
    """A number of bits in words: 1 bit, 2 bits."""
    return f"{count} bit{'s' * (count != 1)}"


def read_lines(path: Path, *, parameter: str) -> list[str]:
    """The non-empty lines of a text file."""
    if not path.is_file():
        raise ParameterError(
            parameter, str(path), "no such file; give a text file with one name per line"
        )
    return [line for line in read_text(path).splitlines() if line]


def is_ranked(path: Path) -> bool:
    """Whether a file holds a ranked codebook; False for an unreadable file."""
    try:
        return path.is_file() and parse_document(read_text(path)).get("kind") == "ranks"
    except FileFormatError:
        return False


ProofOption = Annotated[
    Path | None,
    option("Also certify the claim and write it with its proof to this file (.json).", "--proof"),
]


def write_proof(release: mz.privacy.Release, path: Path, *, overwrite: bool) -> mz.privacy.Claim:
    """The claim of a release; writes it with its proof if the kernel accepts one, and warns why not otherwise."""
    claim, proof = mz.privacy.prove(release)
    if proof is None:
        warn(f"no proof was written: {claim.reason}")
    else:
        claim.save(path, proof, overwrite=overwrite)
    return claim


def sparkline(probabilities: Sequence[float]) -> str:
    """One character per probability, its height relative to the largest."""
    unicode = (sys.stdout.encoding or "").lower().startswith("utf")
    bars = "▁▂▃▄▅▆▇█" if unicode else ".:-=+*#@"
    top = max(probabilities)
    return "".join(" " if p == 0 else bars[min(7, int(8 * p / top))] for p in probabilities)


@contextmanager
def progress(text: str, total: float = math.inf, *, unit: str = "") -> Iterator[Progress]:
    """A progress bar on standard error with rate and time left, if that is a terminal; yields the callback.

    Arguments:
        total: number of steps, if known before the first step.
        unit: unit of what is done; given where the total is only an estimate and is not shown.
    """
    from rich import progress as progress_bars

    shown = (progress_bars.BarColumn(), progress_bars.TextColumn("{task.fields[count]}"))
    with live(
        *shown, progress_bars.TimeElapsedColumn(), progress_bars.TimeRemainingColumn()
    ) as bars:
        task = bars.add_task(text, total=None, count="")

        def tell(done: float, total: float) -> None:
            seconds = bars.tasks[0].elapsed or 0.0
            rate = done / seconds if seconds > 0 else 0.0
            count = (
                f"{done:,.0f} {unit}"
                if unit
                else f"{done:.0f}/{total:.0f}"
                if total > 1
                else f"{done:.0%}"
            )
            shown = f"{count} {rate:,.0f}/s" if rate >= 100 else f"{count} {rate:.2g}/s"
            bars.update(
                task, completed=done, total=total if math.isfinite(total) else None, count=shown
            )

        if math.isfinite(total):
            tell(0, total)
        yield tell


@contextmanager
def busy(text: str) -> Iterator[None]:
    """A spinner on standard error with the elapsed time during one long call, if that is a terminal."""
    from rich import progress as progress_bars

    with live(progress_bars.TimeElapsedColumn(), spinner=True) as bars:
        bars.add_task(text, total=None)
        yield


def live(*columns: ProgressColumn, spinner: bool = False) -> Bars:
    """A progress display on standard error, if that is a terminal: a description, then these columns."""
    from rich import progress as progress_bars

    first = [progress_bars.SpinnerColumn()] if spinner else []
    shown = (*first, progress_bars.TextColumn("{task.description}"), *columns)
    return progress_bars.Progress(
        *shown, console=notices(), transient=True, disable=not sys.stderr.isatty()
    )


PROSE = 24
"""Words in a column that is wider than this stand below the table where it is too wide."""


@final
class TerminalTable:
    """A table laid out to fit the console: numbers are aligned right, words left.

    Headings wrap between words, cells never. Columns that do not fit continue below with the keys repeated,
    and columns of sentences follow as text, each sentence once.

    Arguments:
        columns: headings; none are printed if all are empty.
        rows: their cells; None draws a line.
        left: the columns of words; the first column if None.
        keys: this many first columns identify a row.
    """

    def __init__(
        self,
        columns: Iterable[str],
        rows: Iterable[Sequence[RenderableType] | None],
        *,
        left: Collection[str] | None = None,
        title: str | None = None,
        caption: str | None = None,
        keys: int = 1,
    ) -> None:
        self.columns, self.rows, self.title, self.caption, self.keys = (
            list(columns),
            list(rows),
            title,
            caption,
            keys,
        )
        self.left = [
            place == 0 if left is None else name in left for place, name in enumerate(self.columns)
        ]

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        room, filled = options.max_width, [row for row in self.rows if row is not None]
        cells = [[row[i] for row in filled] for i in range(len(self.columns))]
        needs = [
            max((console.measure(one).maximum for one in (*column, *head.split())), default=1)
            for head, column in zip(self.columns, cells, strict=True)
        ]
        if _whole(needs) <= room:
            yield self._part(range(len(needs)), range(len(needs)), needs, room=room, last=True)
            return
        keys, groups, prose = range(self.keys), list[list[int]]([[]]), list[int]()
        for i in range(self.keys, len(needs)):
            # Long text, or remarks that most rows lack, moves below the table.
            if self.left[i] and (
                needs[i] > PROSE or 2 * sum(bool(str(one)) for one in cells[i]) < len(cells[i])
            ):
                prose.append(i)
                continue
            if groups[-1] and _whole([needs[j] for j in (*keys, *groups[-1], i)]) > room:
                groups.append([])
            groups[-1].append(i)
        for group in groups:
            named = (*keys, *group) if group is groups[0] else group
            yield self._part((*keys, *group), named, needs, room=room, last=group is groups[-1])
        for i in prose:
            said: dict[str, list[str]] = {}
            for row in filled:
                *names, words = (
                    one.plain if isinstance(one, Text) else console.render_str(str(one)).plain
                    for one in (*row[: self.keys], row[i])
                )
                if words.strip():
                    said.setdefault(words, []).append(" ".join(names))
            for words, names in said.items():
                yield Text(f"{', '.join(names)}: {words}")

    def _part(
        self,
        chosen: Sequence[int],
        named: Sequence[int],
        needs: Sequence[int],
        *,
        room: int,
        last: bool,
    ) -> RichTable:
        """The chosen columns, headings for those named; title above the first part, caption below the last."""
        heads, headed = [self.columns[i] if i in named else "" for i in chosen], any(self.columns)
        # Else rich would narrow the widest column, and cut the last one after all.
        broken = (
            _whole([max(needs[i], cell_len(head)) for i, head in zip(chosen, heads, strict=True)])
            > room
        )
        part = RichTable(
            title=self.title if 0 in named else None,
            title_justify="left",
            caption=self.caption if last else None,
            caption_justify="left",
            show_header=headed,
        )
        for i, head in zip(chosen, heads, strict=True):
            side, width = "left" if self.left[i] else "right", needs[i] if broken else None
            part.add_column(head, justify=side, width=width, min_width=needs[i], no_wrap=not headed)
        for row in self.rows:
            if row is None:
                part.add_section()
            else:
                part.add_row(*(row[i] for i in chosen))
        return part


def _whole(needs: Sequence[int]) -> int:
    return sum(needs) + 3 * len(needs) + 1


def ends(level: float) -> list[str]:
    """Headings of an interval's two ends."""
    return [f"{100 * level:.4g} % {end}" for end in ("low", "high")]
