"""EngineGuesses: what guesses for the texts of an engine, chosen by its options."""

import logging
import os
from collections.abc import Callable
from pathlib import Path

from ingot.arrays import Floats
from ingot.engine.model.draft_head import DraftHead
from ingot.engine.model.eagle_head import EagleHead
from ingot.engine.model.loaded_model import LoadedModel
from ingot.engine.model.mtp_head import MtpHead
from ingot.engine.options import EngineOptions
from ingot.engine.speculation.auto import AutoSpeculation
from ingot.engine.speculation.auto_guesser import AutoGuesser
from ingot.engine.speculation.draft_model import DraftProposer, open_draft, require_one_graph
from ingot.engine.speculation.guesser import Guesser, PacedGuesser
from ingot.engine.speculation.head_proposer import HeadProposer
from ingot.engine.speculation.proposers import (
    CopyingProposer,
    NgramProposer,
    NoProposer,
    Proposer,
)
from ingot.errors import IngotError
from ingot.gguf import GgufLoader
from ingot.models import is_draft
from ingot.models.drafts import Draft, read_draft

_log = logging.getLogger("ingot.engine")


def open_eagle(path: str | os.PathLike[str] | None, context: int | None) -> Draft | None:
    """The draft of a path if it reads hidden states of its target; None: it does not."""
    if path is None or Path(path).is_dir():
        return None
    file = GgufLoader(path)
    try:
        if is_draft(file):
            return read_draft(file, context)
    except BaseException:
        file.close()
        raise
    file.close()
    return None


class EngineGuesses:
    """Makes the guesser of each text."""

    def __init__(
        self,
        model: LoadedModel,
        options: EngineOptions,
        columns: int,
        eagle: Draft | None = None,
    ) -> None:
        """A decode step takes at most `columns`. What cannot guess for the model is an error.

        `eagle` is the draft of the options, if that reads hidden states.
        """
        self._mode = options.speculation
        self.draft: LoadedModel | EagleHead | None = None
        self._head: DraftHead | None = None
        # Tells the hidden states of the last tokens that ran, if something guesses from them.
        self.hidden_states: Callable[[int], Floats] | None = None
        if eagle is not None:
            require_one_graph(model)
            self.draft = self._head = EagleHead(model, eagle)
            self.hidden_states = self.draft.hidden_states
        elif options.draft is not None:
            self.draft = open_draft(
                options.draft,
                model,
                threads=options.threads,
                device=options.device,
                numa=options.numa,
            )
        elif model.keeps_hidden:
            self._head = self._own_head(model)
            self.hidden_states = model.last_hidden if self._head else None
        self.auto: AutoSpeculation | None = None
        if self._mode == "auto":
            runs_ahead = model.device_sampler is not None
            self.auto = AutoSpeculation(columns=columns, runs_ahead=runs_ahead)

    def guesser(self, *, can_guess: bool) -> Guesser | None:
        """The guesser of a text.

        Not `can_guess`: its request asks for none, or something else decides which tokens run
        together (a grammar, guidance).
        """
        if self.auto is not None:
            return AutoGuesser(self._auto_proposer() if can_guess else NoProposer(), self.auto)
        if can_guess and (self._mode in ("ngram", "mtp") or self.draft is not None):
            return PacedGuesser(self._proposer())
        return None

    def close(self) -> None:
        """Close the draft."""
        if self.draft is not None:
            self.draft.close()

    def _own_head(self, model: LoadedModel) -> MtpHead | None:
        """The model's layer for multi-token prediction; "auto" does without one that cannot run."""
        try:
            return MtpHead(model)
        except (IngotError, MemoryError) as error:
            if self._mode != "auto":
                raise
            _log.warning("no guesses by multi-token prediction: %s", error)
            return None

    def _auto_proposer(self) -> Proposer:
        proposer = self._proposer()
        return proposer if isinstance(proposer, NgramProposer) else CopyingProposer(proposer)

    def _proposer(self) -> Proposer:
        if self._head is not None:
            return HeadProposer(self._head)
        return DraftProposer(self.draft) if isinstance(self.draft, LoadedModel) else NgramProposer()
