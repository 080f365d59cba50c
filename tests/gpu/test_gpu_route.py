"""The experts of a token: the best by score, the lower number of equal ones, in that order."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from ingot.backends.gpu import find_device
from ingot.backends.gpu.kernels.codes import code
from ingot.backends.gpu.kernels.experts import Groups, Router, route_kernel
from ingot.graph.ops import Gating

DEVICE = find_device().torch
TOKENS = 3
ROUTER = Router(experts=0, used=6, slots=8, gating=code(Gating.CHOSEN_SOFTMAX), normalize=False)


def route(
    scores: NDArray[np.float32], router: Router, bias: NDArray[np.float32] | None = None
) -> tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.int32]]:
    """The experts of every token, their weights, and how many pairs every expert has."""
    tokens, experts = scores.shape
    router = replace(router, experts=1 << (experts - 1).bit_length())
    choice = torch.zeros(tokens, 2 * router.used, device=DEVICE)
    counts = torch.zeros(experts, dtype=torch.int32, device=DEVICE)
    ranks = torch.zeros(tokens * router.used, dtype=torch.int32, device=DEVICE)
    with np.errstate(all="ignore"):
        route_kernel[(tokens,)](
            scores=torch.from_numpy(scores).to(DEVICE),
            bias=None if bias is None else torch.from_numpy(bias).to(DEVICE),
            expert_scales=None,
            choice=choice,
            positions=torch.zeros(tokens, dtype=torch.int32, device=DEVICE),
            groups=Groups(counts, ranks, ranks, ranks, ranks),
            experts=experts,
            scale=1.0,
            near=0.5,
            ROUTER=router,
            COUNTED=True,
            SELECTED=False,
            AHEAD=False,
            num_warps=1,
        )
    chosen, weights = choice.cpu().numpy().reshape(tokens, 2, -1).transpose(1, 0, 2)
    return chosen.astype(np.int64), weights, counts.cpu().numpy()


@pytest.mark.parametrize("experts", [6, 37, 128, 384])
def test_equal_scores(experts: int) -> None:
    """Few different scores, 0 and -0 among them, which are equal."""
    rng = np.random.default_rng(experts)
    scores = (rng.integers(-2, 3, (TOKENS, experts)) * rng.choice([-0.5, 0.5])).astype(np.float32)
    bias = rng.integers(0, 2, experts).astype(np.float32)
    for added in (None, bias):
        by = scores if added is None else scores + added
        expected = np.argsort(-by, axis=1, kind="stable")[:, : ROUTER.used]
        chosen, weights, counts = route(scores, ROUTER, added)
        np.testing.assert_array_equal(chosen, expected)
        shares = np.exp(np.take_along_axis(scores, expected, 1).astype(np.float64))
        np.testing.assert_allclose(weights, shares / shares.sum(1, keepdims=True), rtol=1e-5)
        np.testing.assert_array_equal(counts, np.bincount(expected.ravel(), minlength=experts))


@pytest.mark.parametrize("gating", Gating)
@pytest.mark.parametrize("value", [np.nan, -np.nan, np.inf, -np.inf])
def test_any_score_names_an_expert(gating: Gating, value: float) -> None:
    """A text whose numbers are not finite reads no memory that is not an expert's."""
    scores = np.full((TOKENS, 37), value, np.float32)
    scores[1, 5] = 1.0
    chosen, _, counts = route(scores, replace(ROUTER, gating=code(gating)))
    assert ((chosen >= 0) & (chosen < 37)).all()
    assert counts.sum() == TOKENS * ROUTER.used
