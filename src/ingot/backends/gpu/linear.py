"""Linear layers: which matrices, which kernel, in which pieces.

Weights are unpacked in registers. For up to 64 tokens a program takes 32 to 128 rows and, when
decoding, a share of the columns, so that the device is full. For more tokens it takes 128 rows and
up to 256 tokens (`linear_wide.py`). Products are added in the same order everywhere, so the result
does not show where one way ends and the other begins.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
import triton

from ingot.backends.batch import ExecutionPhase
from ingot.backends.gpu.adapters import PIECE_TOKENS, AdapterBank, AdapterRows
from ingot.backends.gpu.device import Device
from ingot.backends.gpu.kernels.adapters import Target
from ingot.backends.gpu.kernels.codes import activation_code
from ingot.backends.gpu.kernels.epilogue import Epilogue
from ingot.backends.gpu.kernels.linear import Matrix, Split, linear_kernel, linear_pair_kernel
from ingot.backends.gpu.kernels.linear_wide import linear_wide_kernel
from ingot.backends.gpu.kernels.products import ProductTile, Rows
from ingot.backends.gpu.lowering import Context, Launch, Step, launch_of, missing
from ingot.backends.gpu.memory import DeviceMemory, aligned
from ingot.backends.gpu.planes import CHUNK, Planes, PlaneSizes
from ingot.backends.gpu.rows import LinearInput
from ingot.backends.gpu.values import HALF_SCALE
from ingot.backends.gpu.variants import Start
from ingot.backends.gpu.weights import MatrixPlan, plan_linear
from ingot.graph import ops as o

MAX_COLUMNS = 64  # tokens that a program takes when decoding
SHORT_PROMPT = 128  # tokens: up to these a wide tile would be half empty
WIDE_COLUMNS = 256  # tokens that a program takes at most
_WIDE_TOKENS = 512  # of one launch, if programs leave sums for others
_MAX_SPLITS = 16
_WIDE_STAGES = 3  # as tuned on an H200; with fewer, half of the widest tile is faster there
_FEWEST_GROUPED = 4  # shares: from here on they are added in two groups
_PROGRAMS_PER_MULTIPROCESSOR = 8  # of 64 threads: enough loads under way
_FEW_COLUMNS = 8
_ROWS = 32  # of a warp
_FEW_ROWS = 64  # of a program for 2 to 8 tokens
_MANY_ROWS = 128  # of one for more tokens: inputs are read less often
_COUNTER_STEP = 4  # those of each matrix begin at a multiple of 16 bytes
_BIAS_ROOM = 128  # a kernel's last block may read after the rows


@dataclass(frozen=True, slots=True)
class Workspace:
    """Memory that launches share, one after the other."""

    sums: torch.Tensor  # float32: shares of sums
    counters: torch.Tensor  # int32, all 0 between launches

    @classmethod
    def of(
        cls, memory: DeviceMemory, matrices: Sequence[MatrixPlan], device: Device
    ) -> "Workspace":
        """For any of these matrices; those of experts need none of it."""
        plain = [matrix.sizes for matrix in matrices if not matrix.experts]
        sums = max((work_floats(sizes, device) for sizes in plain), default=0)
        counters = max((sizes.rows // 32 for sizes in plain), default=0)
        sums, counters = 2 * sums, 2 * counters + 8  # of two matrices in one kernel
        sums = max(sums, *(_wide_floats(sizes, device) for sizes in plain), 0)
        counters = max(counters, *(_most_wide_blocks(sizes, device) for sizes in plain), 0)
        pool = memory.pool(aligned(4 * sums) + aligned(4 * counters))
        return cls(
            pool.take(4 * sums).view(torch.float32), pool.take(4 * counters).view(torch.int32)
        )


@dataclass(frozen=True, slots=True)
class Cut:
    """How the columns of a matrix are cut, whatever the number of tokens."""

    splits: int
    share: int  # chunks of a split
    unroll: int  # chunks of a step

    @classmethod
    def of(cls, sizes: PlaneSizes, device: Device, shared: bool = True) -> "Cut":
        """As many shares as fill the device, two steps each at least; or a single one."""
        chunks = sizes.chunks
        unroll = unroll_of(sizes)
        if not shared:
            return cls(1, chunks, unroll)
        blocks = sizes.rows // _ROWS
        wanted = device.multiprocessors * _PROGRAMS_PER_MULTIPROCESSOR // blocks
        splits = max(1, min(wanted, chunks // unroll // 2, _MAX_SPLITS))
        share = -(-(chunks // unroll) // splits) * unroll
        return cls(-(-chunks // share), share, unroll)

    @property
    def group(self) -> int:
        """Shares that are added up before the other half is: a program of many tokens takes one."""
        return -(-self.splits // 2) if self.splits >= _FEWEST_GROUPED else self.splits

    @property
    def groups(self) -> int:
        """How many there are."""
        return -(-self.splits // self.group)


def unroll_of(sizes: PlaneSizes) -> int:
    """Chunks of a step: all that share extras, or two, or three.

    Longer steps are slower: their instructions come late (a token of a 1.5B model took 1177 us
    in steps of 2 and 1273 us in steps of 4, on an H200).
    """
    chunks, fewest = sizes.chunks, sizes.form.chunk_multiple
    return max(fewest, next(count for count in (2, 3, 1) if chunks % count == 0))


def stages_of(sizes: PlaneSizes, block: int, columns: int, few: int, device: Device) -> int:
    """Steps whose loads are under way, and the one that computes; more for `few` columns."""
    unroll = unroll_of(sizes)
    tuned = {1: 6, 2: 4}.get(unroll, 3) if columns <= few else 3
    step = unroll * (2 * columns * CHUNK + block * sizes.row_bytes // sizes.chunks)
    return device.stages(tuned, step)


def work_floats(sizes: PlaneSizes, device: Device) -> int:
    """How many shares of sums decoding writes."""
    splits = Cut.of(sizes, device).splits
    return MAX_COLUMNS * sizes.rows * splits if splits > 1 else 0


def _wide_floats(sizes: PlaneSizes, device: Device) -> int:
    """How many sums of groups a launch for many tokens writes."""
    groups = Cut.of(sizes, device).groups
    return _WIDE_TOKENS * sizes.rows * groups if groups > 1 else 0


def wide_blocks(sizes: PlaneSizes, tile: ProductTile, tokens: int) -> int:
    """Blocks of rows and tokens of a launch for many tokens."""
    return int(triton.cdiv(sizes.rows, tile.rows) * triton.cdiv(tokens, tile.columns))


def _most_wide_blocks(sizes: PlaneSizes, device: Device) -> int:
    """At most, if programs leave sums for others."""
    cut = Cut.of(sizes, device)
    tile = wide_tile(sizes, cut, _WIDE_TOKENS, True, device)
    return wide_blocks(sizes, tile, _WIDE_TOKENS)


def wide_tile(sizes: PlaneSizes, cut: Cut, tokens: int, even: bool, device: Device) -> ProductTile:
    """What a program of many tokens takes; sums of shares leave room for half as many."""
    rows, columns = _MANY_ROWS, WIDE_COLUMNS // 2
    if device.interpreted:
        rows = columns = _ROWS
    elif cut.splits == 1 and tokens > columns:
        whole = _wide_stages(sizes, WIDE_COLUMNS, device) == _WIDE_STAGES
        half = triton.cdiv(sizes.rows, rows) * triton.cdiv(tokens, columns)
        # If narrow tiles all run at once, wide ones would leave half of the device idle.
        columns = WIDE_COLUMNS if whole and half > device.multiprocessors else columns
    return ProductTile(
        rows=rows,
        columns=columns,
        stages=_wide_stages(sizes, columns, device),
        even=even,
        unroll=cut.unroll,
        splits=cut.splits,
        group=cut.group,
    )


def _wide_stages(sizes: PlaneSizes, columns: int, device: Device) -> int:
    """Steps under way; the matrix units of sm_90 read inputs where they wait, in one more place."""
    unroll, stages = unroll_of(sizes), _WIDE_STAGES
    inputs = unroll * 2 * columns * CHUNK
    weights = unroll * _MANY_ROWS * sizes.row_bytes // sizes.chunks
    while stages > 1:
        waiting = stages if device.ahead else stages - 1
        if waiting * inputs + (stages - 1) * weights <= device.shared_memory:
            break
        stages -= 1
    return stages


@dataclass(frozen=True, slots=True)
class LinearLayer:
    """A matrix, and what becomes of its sums."""

    planes: Planes
    epilogue: Epilogue
    activation: int
    gated: bool

    @property
    def plain(self) -> bool:
        """Whether sums are only scaled and stored as floats, with a bias at most."""
        after = self.epilogue
        half = after.out.dtype == torch.float16
        return not (after.residual is not None or self.activation or self.gated or half)

    def into(self, out: torch.Tensor | None) -> "LinearLayer":
        """The same, with its values elsewhere; None: where they are."""
        return self if out is None else replace(self, epilogue=self.epilogue._replace(out=out))


@dataclass(frozen=True, slots=True)
class LinearRows:
    """The inputs of a step, and what launches its kernels."""

    x: torch.Tensor
    stride: int
    tokens: int
    phase: ExecutionPhase
    start: Start

    def of(self, planes: Planes) -> Rows:
        """As a matrix reads them."""
        return Rows(self.x, self.stride, planes.columns)


@dataclass(frozen=True, slots=True)
class LinearLauncher:
    """Runs linear layers on a device."""

    device: Device
    work: Workspace

    def run(self, layers: Sequence[LinearLayer], inputs: LinearRows) -> None:
        """out = epilogue(matrix @ x) for all tokens and each of some matrices."""
        decoded = inputs.phase is ExecutionPhase.GENERATION
        if inputs.tokens > (MAX_COLUMNS if decoded else SHORT_PROMPT):
            for layer in layers:
                self._wide(layer, inputs, Cut.of(layer.planes.sizes, self.device, decoded))
        elif decoded:
            self._generation(layers, inputs)
        else:
            for layer in layers:
                self._short_prompt(layer, inputs)

    def _generation(self, layers: Sequence[LinearLayer], inputs: LinearRows) -> None:
        """Up to MAX_COLUMNS tokens; two matrices in one kernel if their sums are only stored."""
        fewest = 8 if self.device.assembly else 16
        columns = max(fewest, triton.next_power_of_2(inputs.tokens))
        few = columns <= _FEW_COLUMNS
        rows = _ROWS if inputs.tokens == 1 else _FEW_ROWS if few else _MANY_ROWS
        if len(layers) == 2 and all(layer.plain for layer in layers):
            self._pair(layers[0], layers[1], inputs, rows, columns)
            return
        for layer in layers:
            cut = Cut.of(layer.planes.sizes, self.device)
            tile = self._tile(layer.planes, cut, rows, columns)
            self._direct(layer, inputs, cut.share, tile, rows // _ROWS, 1)

    def _short_prompt(self, layer: LinearLayer, inputs: LinearRows) -> None:
        sizes = layer.planes.sizes
        cut = Cut.of(sizes, self.device, shared=False)
        tile = self._tile(layer.planes, cut, _MANY_ROWS, MAX_COLUMNS)
        blocks = triton.cdiv(inputs.tokens, MAX_COLUMNS)
        self._direct(layer, inputs, cut.share, tile, 8, blocks)

    def _tile(self, planes: Planes, cut: Cut, rows: int, columns: int) -> ProductTile:
        return ProductTile(
            rows=rows,
            columns=columns,
            stages=stages_of(planes.sizes, rows, columns, _FEW_COLUMNS, self.device),
            even=planes.even,
            unroll=cut.unroll,
            splits=cut.splits,
            group=cut.group,
        )

    def _direct(
        self,
        layer: LinearLayer,
        inputs: LinearRows,
        share: int,
        tile: ProductTile,
        warps: int,
        column_blocks: int,
    ) -> None:
        planes = layer.planes
        inputs.start(
            linear_kernel,
            (triton.cdiv(planes.sizes.rows, tile.rows), tile.splits, column_blocks),
            inputs=inputs.of(planes),
            tokens=inputs.tokens,
            weights=planes.weights,
            split=Split(share, self.work.sums, self.work.counters),
            epilogue=layer.epilogue,
            TILE=tile,
            FORM=planes.form,
            ACTIVATION=layer.activation,
            GATED=layer.gated,
            ASM=self.device.assembly,
            num_warps=warps,
            **self.device.order(),
        )

    def _pair(
        self,
        a: LinearLayer,
        b: LinearLayer,
        inputs: LinearRows,
        rows: int,
        columns: int,
    ) -> None:
        matrices: list[Matrix] = []
        tiles: list[ProductTile] = []
        programs: list[int] = []
        sums = counters = 0
        for layer in (a, b):
            planes, sizes = layer.planes, layer.planes.sizes
            cut = Cut.of(sizes, self.device)
            blocks = triton.cdiv(sizes.rows, rows)
            split = Split(cut.share, self.work.sums[sums:], self.work.counters[counters:])
            matrices.append(Matrix(planes.weights, split, layer.epilogue))
            even = a.planes.even and b.planes.even
            tiles.append(replace(self._tile(planes, cut, rows, columns), even=even))
            programs.append(blocks * cut.splits)
            sums += work_floats(sizes, self.device)
            counters += -(-blocks // _COUNTER_STEP) * _COUNTER_STEP
        inputs.start(
            linear_pair_kernel,
            (sum(programs), 1),
            inputs=inputs.of(a.planes),
            tokens=inputs.tokens,
            a=matrices[0],
            b=matrices[1],
            programs=programs[0],
            TILE_A=tiles[0],
            TILE_B=tiles[1],
            FORM_A=a.planes.form,
            FORM_B=b.planes.form,
            ASM=self.device.assembly,
            num_warps=rows // _ROWS,
            **self.device.order(),
        )

    def _wide(self, layer: LinearLayer, inputs: LinearRows, cut: Cut) -> None:
        planes, tokens = layer.planes, inputs.tokens
        tile = wide_tile(planes.sizes, cut, tokens, planes.even, self.device)
        most = _WIDE_TOKENS if cut.groups > 1 else tokens
        for first in range(0, tokens, most):
            columns = min(most, tokens - first)
            inputs.start(
                linear_wide_kernel,
                (wide_blocks(planes.sizes, tile, columns), cut.groups),
                inputs=inputs.of(planes),
                tokens=first + columns,
                first=first,
                weights=planes.weights,
                split=Split(cut.share, self.work.sums, self.work.counters),
                epilogue=layer.epilogue,
                TILE=tile,
                FORM=planes.form,
                ACTIVATION=layer.activation,
                GATED=layer.gated,
                ASM=self.device.assembly,
                num_warps=8,
                **self.device.order(),
            )


@missing.register
def _(op: o.FusedLinear) -> str | None:
    scales = {part.scale for part in op.parts}
    return "gates and ups of different scales" if op.activation and len(scales) > 1 else None


@launch_of.register
def fused_linear(op: o.FusedLinear, context: Context) -> Launch:
    """One or several matrices of the same input, with all that follows."""
    groups = plan_linear(op, context.model)
    chunks = max(plan.sizes.chunks for plan, _ in groups)
    if context.plan.mixed_norms.get(op.source.name) is op:  # the mix of experts has made it
        source = LinearInput(None, context.memory.x, chunks * CHUNK, 1.0)
    else:
        source = LinearInput.of(context, op.source, op.norm, chunks)
    first = op.parts[0].out
    logits, selected = first == context.plan.graph.logits, context.is_selected(first)
    layers = [
        _layer(op, plan, parts, source.scale, logits=logits, context=context)
        for plan, parts in groups
    ]
    launcher = LinearLauncher(context.device, context.memory.linear)
    adapted = _adapted(op, layers, source, logits=logits, context=context)

    def launch(step: Step) -> None:
        if source.before:
            source.before(step)
        rows = LinearRows(source.x, source.stride, step.rows(selected), step.phase, step.start)
        out = step.logits if logits else None
        uses = step.adapter_rows(selected) if step.adapters else None
        if uses and op.activation:
            adapted.run_activated(launcher, rows, uses)
            return
        launcher.run([layer.into(out) for layer in layers], rows)
        if uses:
            adapted.add(uses, rows, out)

    return launch


@dataclass(frozen=True, slots=True)
class AdaptedLayer:
    """A linear layer in steps with adapters.

    What they add comes after the sums are stored. Before an activation the sums go to scratch
    memory, some tokens at a time, because the kernels of plain steps never store them.
    """

    op: o.FusedLinear
    bank: AdapterBank
    layers: Sequence[LinearLayer]
    target: Target

    def add(self, uses: AdapterRows, rows: LinearRows, out: torch.Tensor | None) -> None:
        """Add to values that are stored; `out`: elsewhere than usual."""
        target = self.target if out is None else self.target._replace(out=out)
        self.bank.add_linear(self.op, uses, rows.x, rows.stride, target)

    def run_activated(self, launcher: LinearLauncher, rows: LinearRows, uses: AdapterRows) -> None:
        """Sums, what adapters add, and then the activation, piece by piece."""
        scratch, layer = uses.memory.scratch, self.layers[0]
        target = self.target._replace(out=scratch)
        epilogue, width = layer.epilogue, self.op.parts[0].out.width
        count = len(self.op.parts)
        bare = replace(
            layer,
            epilogue=epilogue._replace(
                out=scratch, starts=(0,), widths=(count * width,), bases=(0,)
            ),
            activation=activation_code(None),
            gated=False,
        )
        for first in range(0, rows.tokens, PIECE_TOKENS):
            piece = uses.after(first, PIECE_TOKENS)
            x = rows.x[first * rows.stride :]
            launcher.run([bare], replace(rows, x=x, tokens=piece.tokens))
            self.bank.add_linear(self.op, piece, x, rows.stride, target)
            self.bank.activate(
                piece,
                epilogue.out[epilogue.bases[0] + first * width :],
                width,
                epilogue.half_scale,
                layer.activation,
                gated=layer.gated,
            )


def _adapted(
    op: o.FusedLinear,
    layers: Sequence[LinearLayer],
    source: LinearInput,
    *,
    logits: bool,
    context: Context,
) -> AdaptedLayer:
    widths = tuple(part.out.width for part in op.parts)
    count = len(op.parts)
    target = Target(
        out=context.values.arena,
        factors=tuple(part.scale / source.scale for part in op.parts),
        widths=widths,
        bases=(0,) * count if logits else tuple(context.values.offset(p.out) for p in op.parts),
        stride=widths,
        step=1,
    )
    if op.activation:  # row by row in turn, in scratch memory
        target = target._replace(
            bases=tuple(range(count)), stride=(count * widths[0],) * count, step=count
        )
    return AdaptedLayer(op, context.adapters, layers, target)


def _layer(
    op: o.FusedLinear,
    plan: MatrixPlan,
    parts: Sequence[o.LinearPart],
    input_scale: float,
    *,
    logits: bool,
    context: Context,
) -> LinearLayer:
    """One of the matrices of an op."""
    values, planes = context.values, context.matrices.get(plan)
    gated = op.activation is not None and len(op.parts) == 2
    stored = parts[:1] if gated else parts
    residual = parts[0].residual
    half = op.parts[0].out.name in context.plan.halves
    epilogue = Epilogue(
        factor=parts[0].scale / input_scale * planes.factor,
        bias=_bias(context, plan, parts),
        residual=values.tensor(residual) if residual else None,
        out=values.arena.view(torch.float16) if half else values.arena,
        half_scale=HALF_SCALE,
        starts=(0,) if gated else plan.starts,
        widths=tuple(part.out.width for part in stored),
        bases=(0,) if logits else tuple(values.offset(part.out) for part in stored),
    )
    return LinearLayer(planes, epilogue, activation_code(op.activation), gated)


def _bias(context: Context, plan: MatrixPlan, parts: Sequence[o.LinearPart]) -> torch.Tensor | None:
    """The biases of all parts, times their scales, row by row as the matrix has them."""
    vectors = [context.vectors.get(part.bias) for part in parts]
    if all(vector is None for vector in vectors):
        return None
    bias = torch.zeros(plan.sizes.rows + _BIAS_ROOM, device=context.device.torch)
    for index, (part, vector) in enumerate(zip(parts, vectors, strict=True)):
        if vector is None:
            continue
        if plan.interleaved:
            bias[index : len(parts) * len(vector) : len(parts)] = vector * part.scale
        else:
            start = plan.starts[index]
            bias[start : start + len(vector)] = vector * part.scale
    return bias
