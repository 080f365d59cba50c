"""The linear kernels of the GPU: matrices of an 8B model, 64 to 4096 tokens.

    python benchmarks/bench_gpu_linear.py --tokens 64,128,256,512 --tiles 128x128,128x256

A tile is rows x tokens of a program of `linear_wide_kernel`. For each, and for 64 tokens at a time
by `linear_kernel` ("narrow"), it prints microseconds and TFLOP/s. Results of all of them must have
the same bits. Up to 512 tokens are decoded, more are a prompt. Times below 100 microseconds are
those of Python, which launches the kernels.
"""

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import torch
import triton

from ingot.backends.batch import ExecutionPhase
from ingot.backends.gpu import Device, find_device
from ingot.backends.gpu.kernels.epilogue import Epilogue
from ingot.backends.gpu.kernels.linear import Split
from ingot.backends.gpu.kernels.linear_wide import linear_wide_kernel
from ingot.backends.gpu.linear import (
    MAX_COLUMNS,
    Cut,
    LinearLauncher,
    LinearLayer,
    LinearRows,
    Workspace,
    wide_tile,
)
from ingot.backends.gpu.planes import PlaneForm, Planes, PlaneSizes
from ingot.backends.gpu.variants import Kernels

_Q4_K = PlaneForm(4, minimum=True)
_Q6_K = PlaneForm(4, high=2, fine=True)
_SILU = 1
_DECODED = 512  # tokens at most
MATRICES = {
    "query, key, value": (_Q4_K, 6144, 4096, False),
    "attention output": (_Q4_K, 4096, 4096, False),
    "gate and up": (_Q4_K, 28672, 4096, True),
    "down": (_Q6_K, 4096, 14336, False),
}


def random_planes(form: PlaneForm, rows: int, columns: int) -> Planes:
    """A matrix of random codes, with scales of about 1."""
    sizes = PlaneSizes.of(form, rows, columns)

    def words(count: int) -> torch.Tensor:
        return torch.randint(-(1 << 15), 1 << 15, (count // 2,), dtype=torch.int16, device="cuda")

    scales = torch.rand(sizes.scale_bytes // 2, device="cuda").half().view(torch.int32)
    return Planes(
        sizes,
        columns,
        words(sizes.code_bytes).view(torch.uint16),
        words(max(16, sizes.extra_bytes)).view(torch.uint16),
        scales.view(torch.uint32),
        1.0,
    )


@dataclass(frozen=True, slots=True)
class Case:
    """A layer and inputs for it, on a device."""

    device: Device
    work: Workspace
    layer: LinearLayer
    rows: LinearRows

    @classmethod
    def of(cls, name: str, tokens: int, device: Device, work: Workspace) -> "Case":
        """One of MATRICES, with random numbers."""
        form, rows, columns, gated = MATRICES[name]
        width, type = (rows // 2, torch.float16) if gated else (rows, torch.float32)
        out = torch.empty(tokens * width, device="cuda", dtype=type)
        epilogue = Epilogue(2.0**-12, None, None, out, 1.0, (0,), (width,), (0,))
        layer = LinearLayer(random_planes(form, rows, columns), epilogue, gated * _SILU, gated)
        phase = ExecutionPhase.GENERATION if tokens <= _DECODED else ExecutionPhase.PROMPT
        x = torch.randn(tokens, columns, device="cuda").half()
        return cls(device, work, layer, LinearRows(x, columns, tokens, phase, Kernels(device)))

    @property
    def cut(self) -> Cut:
        """How the columns are cut."""
        decoded = self.rows.phase is ExecutionPhase.GENERATION
        return Cut.of(self.layer.planes.sizes, self.device, decoded)

    @property
    def operations(self) -> int:
        """Multiplications and additions."""
        return 2 * self.rows.tokens * self.layer.planes.sizes.rows * self.layer.planes.columns

    def narrow(self) -> None:
        """Some tokens after the others."""
        launcher, out = LinearLauncher(self.device, self.work), self.layer.epilogue.out
        width = self.layer.epilogue.widths[0]
        for first in range(0, self.rows.tokens, MAX_COLUMNS):
            count = min(MAX_COLUMNS, self.rows.tokens - first)
            piece = replace(self.rows, x=self.rows.x[first:], tokens=count)
            launcher.run([self.layer.into(out[first * width :])], piece)

    def wide(self, rows: int, columns: int) -> None:
        """A launch with a tile."""
        planes, cut, tokens = self.layer.planes, self.cut, self.rows.tokens
        tile = wide_tile(planes.sizes, cut, tokens, planes.even, self.device)
        self.rows.start(
            linear_wide_kernel,
            (triton.cdiv(planes.sizes.rows, rows) * triton.cdiv(tokens, columns), cut.groups),
            inputs=self.rows.of(planes),
            tokens=tokens,
            first=0,
            weights=planes.weights,
            split=Split(cut.share, self.work.sums, self.work.counters),
            epilogue=self.layer.epilogue,
            TILE=replace(tile, rows=rows, columns=columns),
            FORM=planes.form,
            ACTIVATION=self.layer.activation,
            GATED=self.layer.gated,
            ASM=True,
            num_warps=8,
            **self.device.order(),
        )

    def ways(self, tiles: list[tuple[int, int]]) -> Iterator[tuple[str, Callable[[], None]]]:
        """Names and launches."""
        yield "narrow", self.narrow
        for rows, columns in tiles:
            if self.cut.splits == 1 or columns <= 128:
                yield f"{rows}x{columns}", partial(self.wide, rows, columns)


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", default="64,128,256,512,4096")
    parser.add_argument("--tiles", default="128x128,128x256")
    options = parser.parse_args()
    pairs = [tile.split("x") for tile in options.tiles.split(",")]
    tiles = [(int(rows), int(columns)) for rows, columns in pairs]
    device = find_device()
    work = Workspace(
        torch.empty(1 << 25, device="cuda"), torch.zeros(1 << 16, dtype=torch.int32, device="cuda")
    )
    for tokens in map(int, options.tokens.split(",")):
        for name in MATRICES:
            case = Case.of(name, tokens, device, work)
            print(f"{tokens} tokens, {name}, {case.cut.splits} shares in {case.cut.groups} groups")
            out, first = case.layer.epilogue.out, None
            for label, run in case.ways(tiles):
                out.zero_()
                milliseconds = triton.testing.do_bench(run, return_mode="median")
                first = out.clone() if first is None else first
                assert torch.equal(first, out), f"{label} differs"
                rate = case.operations / milliseconds / 1e9
                print(f"  {label:10} {1000 * milliseconds:8.1f} us {rate:6.0f} TFLOP/s", flush=True)


if __name__ == "__main__":
    main()
