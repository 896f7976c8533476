"""What several verbs read, check and word alike."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import mezzotint as mz
from mezzotint.cli import console, progress
from mezzotint.cli.options import option
from mezzotint.core.document import parse_document
from mezzotint.core.errors import FileFormatError, InfeasibleError, ParameterError
from mezzotint.core.files import read_text, refuse_existing, replacing
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.records import JsonObject, above

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from matplotlib.figure import Figure as Drawing


RANGE = "Range of the inputs"


def parse_bound(text: str | float) -> float:
    """A bound of the range: a number, a date (its days since 1970), or a time with a zone (its
    seconds).
    """
    from mezzotint.collect.dates import number_of

    try:
        return float(text)
    except ValueError:
        return number_of(str(text))


Lower = Annotated[
    float,
    option(
        "Smallest input, data units, or a date; clips.",
        metavar="NUMBER",
        panel=RANGE,
        parser=parse_bound,
    ),
]
Upper = Annotated[
    float,
    option(
        "Largest input, data units, or a date; clips.",
        metavar="NUMBER",
        panel=RANGE,
        parser=parse_bound,
    ),
]
PriorOption = Annotated[
    str | None,
    option(
        "Public column like the inputs; by default uniform.",
        metavar="FILE:COLUMN",
        panel=RANGE,
    ),
]

SEEDED = "drawn from a seed: NOT PRIVATE"

PRIOR_WARNING = (
    "the design depends on the prior; if that column is private, publishing the mechanism reveals "
    "something about it that epsilon does not cover"
)


def parse_numbers(text: str, *, parameter: str) -> list[float]:
    """Comma-separated numbers, such as -3,-0.5,0.5,3."""
    try:
        return [float(numeral) for numeral in text.split(",")]
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
    """The sample that --prior names, or None for uniform; warns about private data and about
    clipping.
    """
    if prior is None:
        return None
    console.warn(PRIOR_WARNING)
    values = read_public(prior, parameter="prior")
    assert values is not None
    outside = int(((values < lower) | (values > upper)).sum())
    if outside:
        beyond = f"outside --lower {lower:g} .. --upper {upper:g}"
        console.warn(
            f"{outside:,} of the prior's {values.size:,} values lie {beyond} and are clipped"
        )
    return values


def read_public(named: str | None, *, parameter: str) -> npt.NDArray[np.floating] | None:
    """The public sample that an option names as FILE:COLUMN; None where it is not given."""
    if named is None:
        return None
    from mezzotint.report.choices import public_sample

    with progress.busy("reading the sample"):
        return public_sample(named, parameter)


def refuse_given(options: Mapping[str, object], remedy: str) -> None:
    """Raises ParameterError for the first given option: none of them applies here."""
    for option_name, value in options.items():
        if value:
            if value is not True:
                value = str(value)
            raise ParameterError(option_name, value, remedy)


def refuse_outputs(*endings: str, overwrite: bool, **files: Path | None) -> None:
    """Raises ParameterError for the first output file that cannot be written: before the work, not
    after it.

    Arguments:
        endings: of their names, as their format has it; none for any.
    """
    for option_name, file in files.items():
        if file is None:
            continue
        if not file.name.lower().endswith(endings or ""):
            remedy = f"choose a name that ends in {' or '.join(endings)}, the format of this file"
            raise ParameterError(option_name, str(file), remedy)
        refuse_existing(file, overwrite=overwrite, parameter=option_name)


def picked(thing: object, *names: str) -> JsonObject:
    """These attributes of an object, by name."""
    return {attribute: getattr(thing, attribute) for attribute in names}


def load_mechanism(path: Path, *, parameter: str = "mechanism") -> Mechanism:
    """Reads a mechanism file; the error for a missing file names its parameter."""
    if not path.is_file():
        raise ParameterError(
            parameter, str(path), "no such file; make one with: mezzotint design --out m.json"
        )
    try:
        return Mechanism.load(path)
    except FileFormatError as error:
        with path.open("rb") as file:
            begins_as_object = file.read(64).lstrip().startswith(b"{")
        if begins_as_object:
            raise
        # Reports, a column, a model: no damaged mechanism.
        remedy = "name a mechanism file (.json), as mezzotint design --out writes it"
        raise FileFormatError(f"{error}; {remedy}") from None


def best_on_even_levels(
    count: int, reaches: Iterable[float], design: Callable[[list[float]], mz.design.DesignResult]
) -> Mechanism:
    """The design of least error on evenly spaced levels that reach this far; raises the first error
    if all fail.
    """
    mechanisms: list[Mechanism] = []
    refusals: list[InfeasibleError] = []
    for reach in reaches:
        even_levels = [reach * (2 * level / (count - 1) - 1) for level in range(count)]
        try:
            mechanisms.append(design(even_levels).mechanism)
        except InfeasibleError as error:
            refusals.append(error)
    if not mechanisms:
        raise refusals[0]
    return min(mechanisms, key=lambda mechanism: mechanism.mse())


def table_for_shares(epsilon: float, lower: float, upper: float, *, bins: int) -> str:
    """The command that designs a table for the shares of equal bins, and for quantiles to about a
    bin.
    """
    return (
        f"mezzotint design --loss cdf --epsilon {epsilon:.4g} --lower={lower:.12g} "
        f"--upper={upper:.12g} --knots {bins + 1} --levels {2 * bins} --out shares.json"
    )


def each(claim: mz.privacy.Claim | None) -> str:
    """The cost of one report, to which observer, and whether that was checked."""
    if claim is None:
        return SEEDED
    return f"epsilon {above(claim.epsilon)} each ({claim.basis})"


def cost_of(claim: mz.privacy.Claim | None, seeded: bool | None) -> str:
    """The cost of each report behind an estimate, as far as the files record it."""
    cost = each(claim)
    if claim is not None and seeded is None:
        cost += " unless they were drawn from a seed (the files do not say)"
    return cost


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


def write_proof(release: mz.privacy.Release, path: Path, *, overwrite: bool) -> mz.privacy.Claim:
    """The claim of a release; writes it with its proof if the kernel accepts one, and warns why not
    otherwise.
    """
    claim, proof = mz.privacy.prove(release)
    if proof is None:
        console.warn(f"no proof was written: {claim.reason}")
    else:
        claim.save(path, proof, overwrite=overwrite)
    return claim


def write_drawing(drawing: Drawing, path: Path, *, overwrite: bool, parameter: str) -> None:
    """Saves a drawing whole, in the format that the name's ending says."""
    with replacing(path, overwrite=overwrite, parameter=parameter) as temporary:
        drawing.savefig(temporary, format=path.suffix.lower().removeprefix("."))
