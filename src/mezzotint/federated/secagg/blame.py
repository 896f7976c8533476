"""Proof that a client dealt shares of nothing: whoever has the file can check it, and no honest client can be blamed.

A dealing is signed, and holds a commitment to each share. Shares that match the commitments and do not restore what the
same dealing says (the seed that it commits to, the key that it names) were dealt wrongly by whoever signed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, final

from mezzotint.core.errors import FileFormatError, ParameterError
from mezzotint.core.files import read_object, replacing
from mezzotint.federated.secagg import messages
from mezzotint.federated.secagg.masks import combine, commitment, private_from_seed, public_bytes, signed
from mezzotint.federated.secagg.messages import Deal
from mezzotint.federated.secagg.plan import RoundPlan
from mezzotint.federated.secagg.wire import ProtocolError, Reader

_FORMAT = "mezzotint blame"
Kind = Literal["self", "key"]


def restored(
    plan: RoundPlan, deal: Deal, seed_commitment: bytes, kind: Kind, shares: Mapping[int, bytes]
) -> bytes | None:
    """The secret of a quorum's shares; None when it is not the one that the dealing commits to."""
    secret = combine(shares, plan.quorum)
    if secret is None:
        return None
    if kind == "self":
        found = commitment(secret, plan=plan.digest, owner=deal.index, holder=deal.index, kind=b"seed")
        return secret if found == seed_commitment else None
    key = private_from_seed(secret, plan=plan.digest, index=deal.index, purpose=messages.MASK_KEY)
    return secret if public_bytes(key) == deal.mask else None


@final
@dataclass(frozen=True, kw_only=True)
class Blame:
    """What a client dealt, and shares that show that it is of no use.

    Arguments:
        identity: of the client, 32 bytes.
        plan: of the round, as on the wire.
        dealing: the client's message.
        kind: which of the two secrets the shares are of.
        shares: member of the committee -> the share that it opened.
    """

    identity: bytes
    plan: bytes
    dealing: bytes
    kind: Kind
    shares: Mapping[int, bytes]

    def check(self) -> None:
        """Whether this proves anything.

        Raises:
            ParameterError: it does not: not signed by that client, not its shares, too few, or they fit together.
        """
        reader = Reader(self.plan, "plan")
        try:
            plan = RoundPlan.from_reader(reader)
            reader.end()
            deal, seed, portions = messages.read_dealing(self.dealing, plan)
        except ProtocolError as error:
            raise ParameterError("blame", "the dealing", f"is not of this plan: {error}") from None
        if not signed(self.identity, deal.signature, deal.statement(plan)):
            raise ParameterError("blame", "the dealing", "was not signed by this client")
        if len(self.shares) < plan.quorum:
            raise ParameterError("blame", f"{len(self.shares)} shares", f"{plan.quorum} are needed")
        for holder, share in self.shares.items():
            if not 0 <= holder < plan.members:
                raise ParameterError("blame", f"member {holder}", "is not in the committee")
            promised = portions[holder].of_self if self.kind == "self" else portions[holder].of_key
            found = commitment(share, plan=plan.digest, owner=deal.index, holder=holder, kind=self.kind.encode())
            if found != promised:
                raise ParameterError("blame", f"the share of member {holder}", "is not the one that was dealt")
        if restored(plan, deal, seed, self.kind, self.shares) is not None:
            raise ParameterError("blame", "the shares", "fit together; nothing is wrong with this dealing")

    def save(self, path: Path) -> None:
        """Writes the file; one that is there already is replaced."""
        plain = {
            "format": _FORMAT,
            "identity": self.identity.hex(),
            "plan": self.plan.hex(),
            "dealing": self.dealing.hex(),
            "kind": self.kind,
            "shares": {str(holder): share.hex() for holder, share in self.shares.items()},
        }
        with replacing(path, overwrite=True) as temporary:
            temporary.write_text(json.dumps(plain), encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> Blame:
        """The blame in a file, not checked.

        Raises:
            FileFormatError: no such file, or another format.
        """
        plain = read_object(path)
        try:
            if plain["format"] != _FORMAT or plain["kind"] not in ("self", "key"):
                raise ValueError("another format")
            return cls(
                identity=bytes.fromhex(plain["identity"]),
                plan=bytes.fromhex(plain["plan"]),
                dealing=bytes.fromhex(plain["dealing"]),
                kind=plain["kind"],
                shares={int(holder): bytes.fromhex(share) for holder, share in plain["shares"].items()},
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise FileFormatError(f"{Path(path).name}: no blame ({error})") from None
