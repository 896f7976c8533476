"""Why a message was refused: every attack and accident of the protocol has a name."""

from __future__ import annotations

from mezzotint.core.errors import MezzotintError


class ProtocolError(MezzotintError):
    """A message that does not fit the protocol; whoever raises this reveals nothing more in this round.

    Arguments:
        stage: where it happened: "plan", "card", "deal", "sum", "agree", "open" or "unite".
        what: what was wrong, in one sentence.
        culprits: indices of the clients whose messages caused it, when known.
    """

    def __init__(self, stage: str, what: str, culprits: tuple[int, ...] = ()) -> None:
        self.stage = stage
        self.what = what
        self.culprits = culprits
        super().__init__(f"{type(self).__name__} at stage {stage!r}: {what}")


class PlanRefused(ProtocolError):
    """A plan that is unsafe, about another roster, or protects less than wanted."""


class ReplayedRound(ProtocolError):
    """A round that was taken part in already, or a message of another round."""


class WrongStage(ProtocolError):
    """A message that is not the next one of its round."""


class MalformedMessage(ProtocolError):
    """Bytes of the wrong length or form."""


class UnknownSender(ProtocolError):
    """A message by, or about, a client that is not part of this round."""


class DuplicateAnswer(ProtocolError):
    """A second answer of one client in one stage, or one client named twice in a list."""


class SwappedKey(ProtocolError):
    """A public key that its owner did not sign, or somebody else in a client's place."""


class TamperedShare(ProtocolError):
    """A share that was cut, changed, meant for somebody else, or not the one that its owner committed to."""


class OutOfRangeInteger(ProtocolError):
    """An integer that the plan does not allow."""


class InconsistentLists(ProtocolError):
    """Clients were told different things about who takes part, or who survived."""


class TooFewClients(ProtocolError):
    """Fewer clients are left than the plan asks for: the sum stays secret."""
