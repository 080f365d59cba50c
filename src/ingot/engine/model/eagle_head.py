"""EagleHead: a draft that reads hidden states of its target (EAGLE-3), ready to run.

Besides what every head does, it makes one hidden state of those of several layers of the target,
for all tokens of a step at once. Its guesses are in the target's vocabulary, whatever its own is.
"""

from dataclasses import replace

import numpy as np

from ingot.arrays import Floats, HiddenRows
from ingot.backends.batch import Batch, ExecutionPhase
from ingot.backends.cpu import CpuBackend
from ingot.engine.model.draft_head import DraftHead
from ingot.engine.model.head_program import FEW
from ingot.engine.model.joined_rows import HeadInputs
from ingot.engine.model.loaded_model import LoadedModel
from ingot.graph import ops as o
from ingot.graph.kv_layout import KvLayout
from ingot.models.drafts import EMBEDDING, Draft, FittedDraft, fit_draft


class EagleHead(DraftHead):
    """A draft beside its target."""

    def __init__(self, target: LoadedModel, draft: Draft) -> None:
        self.file = draft.file
        width, vocabulary = target.graph.width, target.graph.vocabulary_size
        fitted = fit_draft(draft, target.file, width=width, vocabulary=vocabulary)
        graphs, tensors = fitted.graphs, fitted.tensors.tensors
        token_norm, hidden_norm = (o.Weight(name, tensors[name].shape) for name in draft.norms)
        inputs = HeadInputs(
            o.Weight(EMBEDDING, tensors[EMBEDDING].shape),
            token_norm,
            hidden_norm,
            draft.spec.token_norm.epsilon,
            adds_hidden=not draft.spec.adds_to_normed,
        )
        lent = frozenset(tensors.keys() - draft.file.tensors.keys())
        super().__init__(
            target,
            graphs.layer,
            fitted.tensors,
            inputs,
            graphs.hidden,
            token_map=fitted.token_map,
            lent=lent,
        )
        self._target = target
        layout = KvLayout.of((), target.layout.type)
        if target.on_gpu:
            from ingot.engine.model.gpu_head import GpuFuse  # noqa: PLC0415 (PyTorch)

            self._fuse = GpuFuse(target, graphs.fuse, fitted.tensors, layout, lent).forward
        else:
            self._fuse = _CpuFuse(target, fitted, layout).forward

    def hidden_states(self, tokens: int) -> HiddenRows:
        """The hidden states [tokens, width] of the target's last step, which had so many tokens."""
        everyone = np.arange(tokens, dtype=np.int32)
        batch = Batch(
            ids=np.zeros(tokens, np.int32),
            positions=everyone,
            counts=np.array([tokens], np.int32),
            tables=[()],
            outputs=everyone,
            phase=ExecutionPhase.GENERATION if tokens <= FEW else ExecutionPhase.PROMPT,
        )
        fused = self._fuse(batch, self._target.last_hidden(tokens))
        self._check()
        return fused

    @property
    def change(self) -> str | None:
        """How the file was changed, if weights are still read from it; None: it was not."""
        return None if self._target.on_gpu else self.file.change

    def close(self) -> None:
        """Close the file."""
        self.file.close()

    def _check(self) -> None:
        if not self._target.on_gpu:
            self.file.check()


class _CpuFuse:
    """What makes one hidden state of several, on the CPU."""

    def __init__(self, target: LoadedModel, fitted: FittedDraft, layout: KvLayout) -> None:
        self._backend = CpuBackend(
            fitted.graphs.fuse,
            fitted.tensors,
            layout,
            blocks=0,
            context=target.step_tokens,
            threads=target.threads,
            precision=target.precision,
            max_tokens=target.step_tokens,
        )

    def forward(self, batch: Batch, hidden: Floats) -> Floats:
        """Hidden states of the draft, for those of the target [tokens, several widths]."""
        return self._backend.forward(replace(batch, rows=hidden))
