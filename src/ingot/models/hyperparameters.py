"""What a model file says about its architecture, read the way an architecture file wants it.

`h.integer("block_count")` is the key `<architecture>.block_count`; a missing or mistyped
key is a `GgufError` that names it, a number that no network has a `ModelError`, before
anything of that size is made.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ingot.errors import ModelError
from ingot.gguf import LazyTensor, Metadata
from ingot.graph import rope
from ingot.graph.ops import Gating, NormKind, RopeLayout
from ingot.models.spec import (
    DeltaSpec,
    ExpertGroupsSpec,
    HeadSpec,
    IndexerSpec,
    LatentSpec,
    Mamba2Spec,
    MambaSpec,
    NormSpec,
    RopeSpec,
    SharedExpertSpec,
    TemperSpec,
)
from ingot.quant import decode

_AXES = 4  # of positions: time, height, width and one more
_INDEXER_EPSILON = 1e-6  # no file states it
_MOST = 1 << 31  # tokens or elements; files say more only when they are damaged

# Divisors of the speeds of rotary pairs: for all contexts, or for short and long ones.
_FACTORS = "rope_freqs.weight"
_SHORT_FACTORS, _LONG_FACTORS = "rope_factors_short.weight", "rope_factors_long.weight"
ROPE_TENSORS = frozenset({_FACTORS, _SHORT_FACTORS, _LONG_FACTORS})

_GATINGS = {1: Gating.SOFTMAX, 2: Gating.SIGMOID, 3: Gating.CHOSEN_SOFTMAX}


@dataclass(frozen=True, slots=True)
class Hyperparameters:
    """The keys of one architecture, the tensors of the file, and the context that is wanted."""

    architecture: str
    metadata: Metadata
    tensors: Mapping[str, LazyTensor]
    wanted_context: int | None = None  # None: all that the model allows

    def has_tensor(self, name: str) -> bool:
        """Whether the file holds a tensor that not every model of the architecture has."""
        return name in self.tensors

    def boolean(self, key: str, default: bool) -> bool:
        """Yes or no."""
        return self.metadata.boolean(f"{self.architecture}.{key}", default)

    def integer(self, key: str, default: int | None = None) -> int:
        """A whole number; it must be there if it has no default."""
        full = f"{self.architecture}.{key}"
        if default is None:
            return self.metadata.integer(full)
        return self.metadata.integer(full, default)

    def number(self, key: str, default: float | None = None) -> float:
        """A number; it must be there if it has no default."""
        full = f"{self.architecture}.{key}"
        if default is None:
            return self.metadata.number(full)
        return self.metadata.number(full, default)

    def positive(self, key: str, default: float) -> float:
        """A number above 0."""
        number = self.number(key, default)
        if not 0.0 < number < math.inf:
            raise self._wrong(key, number, "a positive number")
        return number

    def not_negative(self, key: str) -> float:
        """A number from 0, which is also the default."""
        number = self.number(key, 0.0)
        if not 0.0 <= number < math.inf:
            raise self._wrong(key, number, "0 or more")
        return number

    def size(
        self, key: str, default: int | None = None, *, most: int = _MOST, least: int = 1
    ) -> int:
        """A whole number of things there must be at least one of."""
        return self._within(key, self.integer(key, default), most, least)

    def index(self, key: str, count: int) -> int:
        """Which one of so many things, from 0; also the default."""
        return self._within(key, self.integer(key, 0), count - 1, 0)

    def per_layer(self, key: str, default: int | None = None, *, least: int = 1) -> tuple[int, ...]:
        """Such a number for every layer: a list in the file, or one for all of them."""
        value = self.metadata.get(f"{self.architecture}.{key}")
        if isinstance(value, np.ndarray):
            if len(value) != self.layers:
                raise ModelError(
                    f"{self.architecture}.{key} has {len(value)} entries for {self.layers} layers"
                )
            return tuple(self._within(key, int(item), _MOST, least) for item in value)
        return (self._within(key, self.integer(key, default), _MOST, least),) * self.layers

    def numbers_per_layer(self, key: str, *, finite: bool = True) -> tuple[float, ...]:
        """A number for every layer, under a key without the architecture's name."""
        value = self.metadata.get(key)
        if isinstance(value, np.ndarray):
            if len(value) != self.layers:
                raise ModelError(f"{key} has {len(value)} entries for {self.layers} layers")
            found = [float(item) for item in value]
        else:
            found = [self.metadata.number(key)] * self.layers
        if any(map(math.isnan, found)) or (finite and any(map(math.isinf, found))):
            raise ModelError(f"{key} must hold {'finite ' if finite else ''}numbers")
        return tuple(found)

    def _within(self, key: str, number: int, most: int, least: int = 1) -> int:
        if not least <= number <= most:
            raise self._wrong(key, number, f"{least} to {most} in this file")
        return number

    def _wrong(self, key: str, number: float, must: str) -> ModelError:
        return ModelError(f"{self.architecture}.{key} is {number}; it must be {must}")

    @property
    def layers(self) -> int:
        """Number of layers."""
        return self.size("block_count", most=len(self.tensors))  # every layer has some

    @property
    def width(self) -> int:
        """Width of the residual stream."""
        return self.size("embedding_length")

    @property
    def vocabulary(self) -> int:
        """Number of tokens."""
        return self.size("vocab_size", len(self.metadata.strings("tokenizer.ggml.tokens")))

    @property
    def token_types(self) -> int:
        """Kinds of tokens that an embedding tells apart; 0 where there is none of that sort."""
        count = self.metadata.integer("tokenizer.ggml.token_type_count", 0)
        if not 0 <= count <= _MOST:
            raise ModelError(f"tokenizer.ggml.token_type_count is {count}; it must be 0 or more")
        return count

    @property
    def context_length(self) -> int:
        """Tokens the model was trained to see."""
        return self.size("context_length")

    @property
    def heads(self) -> int:
        """Query heads."""
        return self.size("attention.head_count", most=self.width)

    @property
    def kv_heads(self) -> tuple[int, ...]:
        """Key and value heads of every layer; each serves as many query heads."""
        return self._kv_heads(least=1)

    @property
    def hybrid_kv_heads(self) -> tuple[int, ...]:
        """The same; 0 for layers that have no attention."""
        return self._kv_heads(least=0)

    def _kv_heads(self, least: int) -> tuple[int, ...]:
        counts = self.per_layer("attention.head_count_kv", self.heads, least=least)
        for count in counts:
            if count and self.heads % count:
                raise ModelError(
                    f"{self.architecture}: {self.heads} query heads cannot share {count} key heads "
                    "evenly (attention.head_count, attention.head_count_kv)"
                )
        return counts

    @property
    def head_size(self) -> int:
        """Elements of a head."""
        return self.size("attention.key_length", self.width // self.heads)

    @property
    def window_head_size(self) -> int:
        """Elements of a head of layers that see a window."""
        return self.size("attention.key_length_swa", self.head_size)

    def window(self, default: int = 0) -> int:
        """Tokens that a layer with a window sees; 0 where that is all of them."""
        window = self.integer("attention.sliding_window", default)
        if window < 0:
            raise self._wrong("attention.sliding_window", window, "0 or more")
        return window if window < self.context_length else 0

    def window_layers(self, every: int | None = None) -> tuple[bool, ...]:
        """Whether each layer sees a window: as a list says, or all but the last of every so many.

        `every`: how many, if the file does not say. A list may end before the layers for
        multi-token prediction; these see everything then.
        """
        key = "attention.sliding_window_pattern"
        listed = self.metadata.get(f"{self.architecture}.{key}")
        if isinstance(listed, np.ndarray):
            if len(listed) == self.own_layers:
                return (*map(bool, listed), *[False] * self.mtp_layers)
            return tuple(map(bool, self.per_layer(key, least=0)))
        period = self.size(key, every)
        return tuple((layer + 1) % period != 0 for layer in range(self.layers))

    def shared_kv(self, windows: Sequence[bool]) -> tuple[int | None, ...]:
        """The layer whose keys and values each layer reads; None: its own.

        The last layers read those of the last one before them that has a window as they do.
        """
        count = self.count("attention.shared_kv_layers")
        own = self.layers - count
        if own < 1:
            raise self._wrong("attention.shared_kv_layers", count, f"less than {self.layers}")
        last = {window: layer for layer, window in enumerate(windows[:own])}
        if missing := set(windows) - set(last):
            kind = "with a window" if True in missing else "that sees everything"
            raise ModelError(
                f"{self.architecture}: the last {count} layers share keys and values, but no layer "
                f"{kind} is left to share them with (attention.shared_kv_layers)"
            )
        return (None,) * own + tuple(last[window] for window in windows[own:])

    @property
    def rms_epsilon(self) -> float:
        """Epsilon of RMS norms."""
        return self.number("attention.layer_norm_rms_epsilon")

    @property
    def layer_epsilon(self) -> float:
        """Epsilon of layer norms."""
        return self.number("attention.layer_norm_epsilon")

    @property
    def experts(self) -> int:
        """Experts of a layer."""
        return self.size("expert_count")

    @property
    def experts_used(self) -> int:
        """Experts that one token uses."""
        return self.size("expert_used_count", most=self.experts)

    def gating(self, default: Gating) -> Gating:
        """How the scores of experts become weights; `default` if the file does not say."""
        return self.stated_gating or default

    @property
    def stated_gating(self) -> Gating | None:
        """The gating that the file states, if it does."""
        number = self.integer("expert_gating_func", 0)
        if number and number not in _GATINGS:
            known = "1 (softmax), 2 (sigmoid) or 3 (softmax of the chosen experts)"
            raise self._wrong("expert_gating_func", number, known)
        return _GATINGS.get(number)

    def expert_groups(self, best: int) -> ExpertGroupsSpec | None:
        """Groups of experts, if there are several; their `best` scores say which are used."""
        count = self.size("expert_group_count", 1, most=self.experts)
        used = self.size("expert_group_used_count", count, most=count)
        if count == 1:
            return None
        size, rest = divmod(self.experts, count)
        if rest or used * size < self.experts_used:
            fitting = f"a number that divides {self.experts} experts"
            if not rest:
                fitting = f"fewer: {used} groups have no {self.experts_used} experts"
            raise self._wrong("expert_group_count", count, fitting)
        return ExpertGroupsSpec(count=count, used=used, best=min(best, size))

    def shared_expert(self) -> SharedExpertSpec | None:
        """The shared experts, which files hold as one that is as wide as all of them."""
        count = self.count("expert_shared_count")
        if not count:
            return None
        width = count * self.size("expert_feed_forward_length")
        return SharedExpertSpec(width=self.size("expert_shared_feed_forward_length", width))

    @property
    def dense_layers(self) -> int:
        """Layers at the beginning that have an MLP instead of experts."""
        return self.count("leading_dense_block_count")

    @property
    def mtp_layers(self) -> int:
        """Layers at the end, counted in `layers`, that predict tokens further ahead."""
        count = self.count("nextn_predict_layers")
        if count >= self.layers:
            raise self._wrong("nextn_predict_layers", count, f"less than {self.layers} layers")
        return count

    @property
    def own_layers(self) -> int:
        """Layers that predict the next token."""
        return self.layers - self.mtp_layers

    def count(self, key: str) -> int:
        """A whole number of things there may be none of, which is also the default."""
        number = self.integer(key, 0)
        if not 0 <= number <= _MOST:
            raise self._wrong(key, number, f"0 to {_MOST}")
        return number

    def mamba(self, inner_norms: tuple[NormSpec, NormSpec, NormSpec] | None) -> MambaSpec:
        """A state space whose channels are heads of their own."""
        return MambaSpec(
            width=self.size("ssm.inner_size"),
            states=self.size("ssm.state_size"),
            taps=self.size("ssm.conv_kernel"),
            step_rank=self.size("ssm.time_step_rank"),
            inner_norms=inner_norms,
        )

    def mamba2(self, norm: NormSpec | None) -> Mamba2Spec:
        """A state space of heads in groups."""
        return Mamba2Spec(
            width=self.size("ssm.inner_size"),
            states=self.size("ssm.state_size"),
            taps=self.size("ssm.conv_kernel"),
            heads=self.size("ssm.time_step_rank"),
            groups=self.size("ssm.group_count"),
            norm=norm,
        )

    def latents(self, layout: RopeLayout = RopeLayout.INTERLEAVED) -> LatentSpec:
        """Multi-head latent attention."""
        fused = not self.integer("attention.key_length_mla", 0)  # as older converters left it
        kind = "" if fused else "_mla"
        head = self.size(f"attention.key_length{kind}")
        rotary = self.size("rope.dimension_count", most=head - 1)
        latent = self.size("attention.kv_lora_rank")
        if not fused:  # then the sizes of what the cache holds are stated too
            self._check_size("attention.key_length", latent + rotary)
            self._check_size("attention.value_length", latent)
        # YaRN stretches the scores of attention instead of cosines and sines.
        rope, stretch = self.rope(layout), 1.0
        if multiplier := self.not_negative("rope.scaling.yarn_log_multiplier"):
            stretch += multiplier * math.log(max(1.0, self.positive("rope.scaling.factor", 1.0)))
            rope = replace(rope, magnitude=1.0)
        return LatentSpec(
            heads=self.heads,
            latent=latent,
            rotary=rotary,
            key_size=head - rotary,
            value_size=self.size(f"attention.value_length{kind}", self.width // self.heads),
            rope=rope,
            scale=stretch**2 / math.sqrt(head),
            latent_norm=NormSpec("attn_kv_a_norm", self.rms_epsilon),
            query_rank=self.count("attention.q_lora_rank"),
            query_norm=NormSpec("attn_q_a_norm", self.rms_epsilon),
            fused=fused,
            temper=self.temper(),
        )

    def indexers(self, layout: RopeLayout) -> tuple[IndexerSpec | None, ...]:
        """What chooses the positions that each layer sees, with queries and keys in this layout.

        A layer after the first has none of its own if the file says so, or if it says nothing and
        has no tensors of one.
        """
        rotary = self.size("rope.dimension_count")
        own = IndexerSpec(
            heads=self.size("attention.indexer.head_count"),
            size=self.size("attention.indexer.key_length", least=rotary + 1),
            rotary=rotary,
            count=min(self.size("attention.indexer.top_k"), self.context_length),
            rope=replace(self.latents().rope, layout=layout),
            key_norm=NormSpec(
                "indexer.k_norm",
                self.number("attention.layer_norm_epsilon", _INDEXER_EPSILON),
                NormKind.LAYER,
                bias=True,
            ),
        )
        self.size("attention.q_lora_rank")  # its queries are made of what has this size
        found = [
            not layer or self.has_tensor(f"blk.{layer}.indexer.attn_k.weight")
            for layer in range(self.layers)
        ]
        key = f"{self.architecture}.attention.indexer.types"
        if (stated := self.metadata.get(key)) is not None:
            fits = {self.own_layers, self.layers}
            if not isinstance(stated, np.ndarray) or len(stated) not in fits:
                raise ModelError(f"{key} must be a list of {self.own_layers}, one for each layer")
            if not stated[0]:
                raise ModelError(f"{key} says that the first layer shares an indexer before it")
            found[: len(stated)] = map(bool, stated)
        shared = replace(own, shared=True)
        layers = [own if has else shared for has in found[: self.own_layers]]
        return (*layers, *(own if has else None for has in found[self.own_layers :]))

    def _check_size(self, key: str, fitting: int) -> None:
        """A size that follows from others: a file may leave it out, but not contradict them."""
        if (size := self.integer(key, fitting)) != fitting:
            sizes = f"{fitting} (attention.kv_lora_rank, rope.dimension_count)"
            raise self._wrong(key, size, sizes)

    def temper(self) -> TemperSpec | None:
        """How queries grow after the original context, if the context that is wanted is longer."""
        scale = self.not_negative("attention.temperature_scale")
        length = self.size("attention.temperature_length", self.original_context)
        wanted = min(self.wanted_context or self.context_length, self.context_length)
        return TemperSpec(scale=scale, length=length) if scale and wanted > length else None

    def delta(self, **special: bool) -> DeltaSpec:
        """A gated delta rule, with what is special about it."""
        heads = self.size("ssm.time_step_rank")
        key_heads = self.size("ssm.group_count", most=heads)
        width = self.size("ssm.inner_size")
        if heads % key_heads or width % heads:
            raise ModelError(
                f"{self.architecture}: {heads} heads of {width} values cannot share {key_heads} "
                "key heads evenly (ssm.time_step_rank, ssm.inner_size, ssm.group_count)"
            )
        return DeltaSpec(
            heads=heads,
            key_heads=key_heads,
            key_size=self.size("ssm.state_size"),
            value_size=width // heads,
            taps=self.size("ssm.conv_kernel"),
            norm=NormSpec("ssm_norm", self.rms_epsilon),
            **special,
        )

    @property
    def attention_layers(self) -> tuple[bool, ...]:
        """Whether each layer has attention: those that a list says, or every so many."""
        listed = self.metadata.get(f"{self.architecture}.attention.recurrent_layers")
        if isinstance(listed, np.ndarray):
            if len(listed) != self.layers:
                raise ModelError(
                    f"{self.architecture}.attention.recurrent_layers has {len(listed)} entries for "
                    f"{self.layers} layers"
                )
            return tuple(not recurrent for recurrent in listed)
        every = self.size("full_attention_interval", 4)
        return tuple((layer + 1) % every == 0 for layer in range(self.layers))

    def head(self) -> HeadSpec | None:
        """The head that scores whole texts, if the file has one."""
        dense, outputs = self._rows("cls.weight"), self._rows("cls.output.weight")
        if not dense and not outputs:
            return None
        return HeadSpec(
            dense=dense,
            outputs=outputs,
            dense_bias=self.has_tensor("cls.bias"),
            output_bias=self.has_tensor("cls.output.bias"),
        )

    def _rows(self, name: str) -> int:
        """The rows of a matrix, of which there may be none; one may be stored as a vector."""
        shape = self.tensors[name].shape if name in self.tensors else (0, 0)
        return shape[0] if len(shape) > 1 else 1

    def rope(
        self,
        layout: RopeLayout,
        *,
        yarn_in_whole_pairs: bool = True,
        factors_required: bool = False,
    ) -> RopeSpec:
        """Rotary positions as the file asks for; some networks need its `rope_freqs.weight`."""
        size, base = self._rope_size, self.positive("rope.freq_base", 10000.0)
        self._check_sections(size // 2)
        scaling = self.metadata.string(f"{self.architecture}.rope.scaling.type", "linear")
        factor = self.positive("rope.scaling.factor", 1.0)
        attention_factor = self.positive("rope.scaling.attn_factor", 1.0)
        yarn = None
        if scaling == "yarn":
            yarn = rope.Yarn(
                factor=factor,
                original_context=self.original_context,
                beta_fast=self.positive("rope.scaling.yarn_beta_fast", 32.0),
                beta_slow=self.positive("rope.scaling.yarn_beta_slow", 1.0),
                attention_factor=attention_factor,
                log_multiplier=self.not_negative("rope.scaling.yarn_log_multiplier"),
                whole_pairs=yarn_in_whole_pairs,
            )
        elif scaling not in {"none", "linear", "longrope"}:
            raise ModelError(
                f"rotary scaling {scaling!r} is not known; none, linear, longrope and yarn are"
            )
        speeds, magnitude = rope.frequencies(
            size,
            base,
            linear_factor=factor if scaling == "linear" else 1.0,
            yarn=yarn,
            factors=self._rope_factors(size // 2, factors_required),
        )
        return RopeSpec(speeds, layout, magnitude if yarn else attention_factor)

    def window_rope(self, layout: RopeLayout, base: float) -> RopeSpec:
        """Rotary positions of layers that see a window: never stretched, `base` if not given."""
        head = self.window_head_size
        size = self._rope_size if head == self.head_size else head
        size = self._even("rope.dimension_count_swa", size, head)
        speeds, _ = rope.frequencies(size, self.positive("rope.freq_base_swa", base))
        return RopeSpec(speeds, layout)

    @property
    def _rope_size(self) -> int:
        return self._even("rope.dimension_count", self.head_size, self.head_size)

    def _check_sections(self, pairs: int) -> None:
        """Rotary pairs of each axis of an image, whose positions in text are all the same."""
        key = f"{self.architecture}.rope.dimension_sections"
        if (stated := self.metadata.get(key)) is None:
            return
        counts = np.asarray(stated)
        numbers = counts.ndim == 1 and len(counts) <= _AXES and counts.dtype.kind in "iu"
        if not numbers or counts.min(initial=0) < 0 or sum(counts.tolist()) > pairs:
            raise ModelError(
                f"{key} must be a list of up to {_AXES} numbers of rotary pairs, each at least 0 "
                f"and at most {pairs} together (half of rope.dimension_count)"
            )

    def _even(self, key: str, default: int, head_size: int) -> int:
        """Elements of a head that turn, in pairs."""
        size = self.integer(key, default)
        if size not in range(0, head_size + 1, 2):
            even = f"an even number up to the size of a head, {head_size}"
            raise self._wrong(key, size, even)
        return size

    @property
    def original_context(self) -> int:
        """Tokens of the context before it was stretched."""
        return self.size("rope.scaling.original_context_length", self.context_length)

    def _rope_factors(self, pairs: int, required: bool) -> Sequence[float] | None:
        name = _FACTORS
        if _LONG_FACTORS in self.tensors:
            context = min(self.wanted_context or self.context_length, self.context_length)
            name = _LONG_FACTORS if context > self.original_context else _SHORT_FACTORS
        if name not in self.tensors:
            if required:
                raise ModelError(
                    f"tensor {name} (shape {(pairs,)}) is missing: RoPE of {self.architecture} "
                    "divides its frequencies by it"
                )
            return None
        factors: list[float] = decode(self.tensors[name].data, self.tensors[name].type).tolist()
        if len(factors) != pairs or not all(0.0 < factor < math.inf for factor in factors):
            raise ModelError(f"{name} must hold {pairs} positive numbers, one per pair")
        return factors
