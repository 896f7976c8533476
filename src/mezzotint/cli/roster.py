"""`mezzotint roster ...`: the list of the clients of secure sums, which every client holds."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import mezzotint as mz
from mezzotint.cli import console
from mezzotint.cli.options import AsJson, argument, family, option, verb
from mezzotint.core.errors import MezzotintError, ParameterError
from mezzotint.core.files import read_text, refuse_existing, replacing

if TYPE_CHECKING:
    from mezzotint.federated.secagg.roster import Card, Roster

app = family()


@verb(app, "identity identity.key --records records")
def identity(
    file: Annotated[
        Path, argument("File of the new secret; it never leaves the client's machine.")
    ],
    records: Annotated[
        Path,
        option(
            "Folder in which the identity's ledger begins: what it signs and spends, for life. "
            "Never copy or restore it."
        ),
    ],
    as_json: AsJson = False,
) -> None:
    """Make a client's long-term secret key, begin its ledger, and print its public card, for the
    maker of the roster.
    """
    from mezzotint.federated.lifetime_ledger import begin_lifetime
    from mezzotint.federated.secagg import read_introduction

    refuse_existing(file, overwrite=None, parameter="file")
    records.mkdir(mode=0o700, parents=True, exist_ok=True)
    with replacing(file) as temporary:
        temporary.touch(mode=0o600)
        temporary.write_bytes(os.urandom(32))
    # The key comes first, as the ledger bears its identity. Where the ledger then fails, the key
    # signs nothing: clients refuse an identity without a ledger, and a second call refuses the file.
    introduced = _introduced(file, "file")
    begin_lifetime(records, read_introduction(introduced).identity.hex())
    _print_card(introduced, as_json)


@verb(app, "card identity.key")
def card(
    file: Annotated[Path, argument("File written by `roster identity`.")],
    as_json: AsJson = False,
) -> None:
    """Print the card of an identity again; a card is public, and signed by its owner."""
    _print_card(_introduced(file, "file"), as_json)


@verb(app, "make cards.txt --out roster.json")
def make(
    cards: Annotated[Path, argument("File with one card per line, of all clients.")],
    out: Annotated[
        Path, option("Roster to write; clients name it in their policy, as roster = ...")
    ],
    as_json: AsJson = False,
) -> None:
    """Make the roster of all clients, with the random beacon that determines clients and committee
    of every round.
    """
    card_lines = [
        line.strip() for line in read_text(_present(cards, "cards")).splitlines() if line.strip()
    ]
    if len(card_lines) < 2:
        remedy = "put each card that `mezzotint roster card` prints on its own line"
        raise ParameterError(
            "cards",
            str(cards),
            f"lists {len(card_lines)} client{'s' * (len(card_lines) != 1)}, needs at least 2; "
            f"{remedy}",
        )
    roster = mz.federated.Roster.drawn(
        _read_card(f"{cards.name}, line {line_number}", line)
        for line_number, line in enumerate(card_lines, start=1)
    )
    refuse_existing(out, overwrite=None)
    roster.save(out)
    _print_roster(roster, as_json, out=str(out))
    if not as_json:
        console.note(
            "every client compares this SHA-256 with what `mezzotint roster check` prints of its "
            "file"
        )


@verb(app, "check roster.json --identity identity.key")
def check(
    file: Annotated[Path, argument("Roster file of a client.")],
    identity: Annotated[Path | None, option("File of the client's own identity.")] = None,
    as_json: AsJson = False,
) -> None:
    """Print the SHA-256 of a roster for comparison; exit status 2 if the identity is not listed."""
    from mezzotint.federated.secagg import read_introduction

    roster = mz.federated.Roster.load(_present(file, "file"))
    if identity is not None:
        card = read_introduction(_introduced(identity, "identity"))
        if card not in roster.members:
            raise ParameterError(
                "identity", str(identity), "this roster does not list its card; ask who made it"
            )
    _print_roster(roster, as_json)


@verb(app, "signer identity.key --records records --policy policy.toml --socket signer.sock")
def signer(
    file: Annotated[Path, argument("File written by `roster identity`.")],
    records: Annotated[Path, option("Folder of the identity's ledger.")],
    socket: Annotated[
        Path, option("Unix socket to answer on, as signer = ... in a node's configuration.")
    ],
    policy: Annotated[
        Path | None, option("The client's policy; without one, none is required.")
    ] = None,
    user: Annotated[int | None, option("Number of the node's user, if it is another one.")] = None,
    as_json: AsJson = False,
) -> None:
    """Hold a client's keys, policy and ledger in a process of their own, which Flower's node and
    its apps ask.
    """
    from mezzotint.federated.signer import SignerProcess, lasting_signer

    client_signer = lasting_signer(
        identity=_present(file, "file"), records=records, policy=policy, warn=console.note
    )
    users: list[int] = []
    if user is not None:
        users.append(user)
    process = SignerProcess(socket, client_signer, users)
    identity = client_signer.identity().hex()
    console.note(f"answers on {socket} for {identity}")
    console.show({"socket": str(socket), "identity": identity}, as_json, list)
    try:
        process.serve()
    finally:
        process.close()


@verb(app, "blame run/blame-0123.json")
def blame(
    file: Annotated[Path, argument("Proof written by a run beside its ledger.")],
    as_json: AsJson = False,
) -> None:
    """Check a proof that a client dealt invalid shares; exit status 2 if the proof is not valid."""
    from mezzotint.federated.secagg import Blame

    proof = Blame.load(_present(file, "file"))
    proof.check()
    identity = proof.identity.hex()
    verdict = f"proved: client {identity} signed shares that restore nothing"
    console.show({"identity": identity, "proved": True}, as_json, lambda: verdict)


def _introduced(file: Path, parameter: str) -> bytes:
    from mezzotint.federated.secagg.roster import introduce, read_identity

    return introduce(read_identity(_present(file, parameter), parameter=parameter))


def _present(file: Path, parameter: str) -> Path:
    if not file.is_file():
        raise ParameterError(parameter, str(file), "no such file; check the path")
    return file


def _print_roster(roster: Roster, as_json: bool, **more: str) -> None:
    json_fields = {"members": len(roster.members), "sha256": roster.digest.hex(), **more}
    console.show(
        json_fields,
        as_json,
        lambda: f"{json_fields['members']} clients, SHA-256 {json_fields['sha256']}",
    )


def _print_card(introduction: bytes, as_json: bool) -> None:
    console.show({"card": introduction.hex()}, as_json, introduction.hex)


def _read_card(line_number: str, line: str) -> Card:
    from mezzotint.federated.secagg import read_introduction

    try:
        return read_introduction(bytes.fromhex(line))
    except (ValueError, MezzotintError):
        raise ParameterError(
            "cards", line_number, "is not a card; `mezzotint roster card` prints them"
        ) from None
