"""EagleHead: a draft that reads hidden states of its target (EAGLE-3), ready to run on the CPU.

Besides what every head does, it makes one hidden state of those of several layers of the target,
for all tokens of a step at once. Its guesses are in the target's vocabulary, whatever its own is.
"""

import numpy as np

from ingot.arrays import Floats, Ints, Logits
from ingot.backends.batch import Batch, ExecutionPhase
from ingot.backends.cpu import CpuBackend
from ingot.engine.model.draft_head import FEW, DraftHead
from ingot.engine.model.joined_rows import JoinedRows
from ingot.engine.model.loaded_model import LoadedModel
from ingot.graph.kv_layout import KvLayout
from ingot.kvcache import SequenceBlocks
from ingot.models.drafts import EMBEDDING, Draft, fit_draft


class EagleHead(DraftHead):
    """A draft beside its target."""

    def __init__(self, target: LoadedModel, draft: Draft) -> None:
        self.file = draft.file
        width, vocabulary = target.graph.width, target.graph.vocabulary_size
        fitted = fit_draft(draft, target.file, width=width, vocabulary=vocabulary)
        graphs, tensors = fitted.graphs, fitted.tensors.tensors
        super().__init__(target, graphs.layer, fitted.tensors, graphs.hidden)
        self._target = target
        self._token_map = fitted.token_map
        self._adds_to_normed = draft.spec.adds_to_normed
        norms = (tensors[name] for name in draft.norms)
        self._inputs = JoinedRows(tensors[EMBEDDING], norms, draft.spec.token_norm.epsilon)
        self._fuse = CpuBackend(
            graphs.fuse,
            fitted.tensors,
            KvLayout.of((), target.layout.type),
            blocks=0,
            context=target.step_tokens,
            threads=target.threads,
            precision=target.precision,
            max_tokens=target.step_tokens,
        )

    def hidden_states(self, tokens: int) -> Floats:
        """The hidden states [tokens, width] of the target's last step, which had so many tokens."""
        everyone = np.arange(tokens, dtype=np.int32)
        batch = Batch(
            ids=np.zeros(tokens, np.int32),
            positions=everyone,
            counts=np.array([tokens], np.int32),
            tables=[()],
            outputs=everyone,
            phase=ExecutionPhase.GENERATION if tokens <= FEW else ExecutionPhase.PROMPT,
            rows=self._target.last_hidden(tokens),
        )
        fused = self._fuse.forward(batch)
        self.file.check()
        return fused

    @property
    def change(self) -> str | None:
        """How the file was changed; None: it was not."""
        return self.file.change

    def close(self) -> None:
        """Close the file."""
        self.file.close()

    def _rows(self, ids: Ints, hidden: Floats) -> Floats:
        """Tokens and hidden states side by side, and what the layer adds to."""
        joined = self._inputs.of(ids, hidden)
        return joined if self._adds_to_normed else np.concatenate([joined, hidden], axis=1)

    def _token(self, guessed: int) -> int:
        """Its number in the target's vocabulary."""
        return guessed if self._token_map is None else int(self._token_map[guessed])

    def _run(self, sequence: SequenceBlocks, ids: Ints, hidden: Floats, outputs: Ints) -> Logits:
        logits = super()._run(sequence, ids, hidden, outputs)
        self.file.check()
        return logits
