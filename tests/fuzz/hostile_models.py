"""Hostile model files without end: each number gives one file, always the same.

A file starts as a small valid model of one of the architectures, with one of the vocabulary
kinds and a chat template. Then what a reader of models may stumble over is changed: values and
types of keys, arrays, shapes, types and names of tensors, tokens, templates, weights; or the
fields and bytes of the file as `mutate.py` spoils them. Some files stay valid, on purpose.
"""

import struct
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import Any

from data.chat_templates.bombs import BOMBS, ESCAPES
from fuzz.craft import Craft, encode
from fuzz.mutate import BYTE_MUTATIONS, FIELD_MUTATIONS
from ingot import quant
from ingot.gguf import GgmlType, ValueType
from ingot.models import architectures
from models.tiny_models import SHARED_KEYS, VOCABULARY, Fixture

_PREFIX = "tokenizer.ggml."
_TOKENS, _TYPES, _SCORES = (f"{_PREFIX}{name}" for name in ("tokens", "token_type", "scores"))
_MERGES, _TEMPLATE = f"{_PREFIX}merges", "tokenizer.chat_template"
_INTEGERS = (
    *(0, 1, -1, 2, 3, 5, 7, 8, 16, 33, 60, 61, 62, 64, 96, 255, 256, 1000, 4096, 65_535, 65_536),
    *(2**24, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**62, 2**63 - 1, -(2**31), -(2**63)),
)
_FLOATS = (0.0, -0.0, 1.0, -1.0, 0.5, 1e-30, 1e-45, 1e30, 3.4e38, float("inf"), float("nan"))
_TEXTS = (
    *(b"", b"a", b"llama", b"gpt2", b"bert", b"t5", b"rwkv", b"default", b"gpt-2", b"\xff\xfe"),
    *(b"linear", b"yarn", b"longrope", b"none", b"\x00", b"x" * 70_000, "naïve 😀".encode()),
    *(b"{{", b"<s>", b"</s>", b"<0x41>", b"<0xZZ>", b"<|im_end|>", "▁".encode(), b"'\\xff'", b"'"),
)
_WEIGHTS = (
    *(GgmlType.F32, GgmlType.F32, GgmlType.F16, GgmlType.BF16, GgmlType.Q8_0, GgmlType.Q4_0),
    *(GgmlType.Q5_1, GgmlType.IQ4_NL, GgmlType.MXFP4),
)
_TEMPLATES = (
    b"{% for m in messages %}<s>{{ m.role }}: {{ m.content }}</s>{% endfor %}",
    b"{{ messages[0].content }}",
    b"{{ bos_token }}{% for m in messages %}{{ m['content'] | trim }}{% endfor %}",
)
_BROKEN_TEMPLATES = (
    *(b"", b"{{", b"{%", b"{% for %}", b"{{ x.y.z }}", b"{{ 1 / 0 }}", b"{{ 10 ** 10 ** 10 }}"),
    *(
        b"{% if true %}" * 200,
        b"{{ " + b"(" * 5000 + b"1" + b")" * 5000 + b" }}",
        b"\xff\xfe{{ 1 }}",
    ),
    *(b"{% set x = namespace() %}{{ x.y }}", b"{{ messages[99] }}", b"{{ raise_exception('no') }}"),
    *(b"{% include 'x' %}", b"{{ 'a' * 2 ** 40 }}", b"{{ range(2 ** 62) | list }}"),
)


@dataclass
class Key:
    """A key and its value, or its values if it is an array."""

    name: str
    kind: ValueType
    value: Any
    is_array: bool = False


@dataclass
class Tensor:
    """A tensor and its bytes."""

    name: str
    dimensions: list[int]  # as in the file: the contiguous one first
    kind: int
    data: bytes


@dataclass
class Model:
    """A file before it is written."""

    keys: list[Key]
    tensors: list[Tensor]

    def craft(self) -> Craft:
        """Make the file."""
        craft = Craft()
        for key in self.keys:
            add = craft.array if key.is_array else craft.key
            add(key.name, key.kind, key.value)
        for tensor in self.tensors:
            craft.tensor(tensor.name, tensor.dimensions, tensor.kind, tensor.data)
        return craft

    def find(self, name: str) -> Key | None:
        """The first key of a name."""
        return next((key for key in self.keys if key.name == name), None)


def make_model(seed: int, number: int) -> tuple[str, bytes]:
    """The architecture and the bytes of file `number` of the sequence that `seed` names."""
    random = Random(f"model {seed}:{number}")
    names = architectures()
    architecture = names[number % len(names)]
    model = valid_model(architecture, random)
    choice = random.random()
    if choice < 0.04:
        return architecture, model.craft().bytes()
    if choice < 0.80:
        for _ in range(random.choice((1, 1, 1, 1, 2, 3))):
            random.choice(_MODEL_MUTATIONS)(random, model)
    fields = model.craft().fields()
    if 0.75 <= choice < 0.90:
        for _ in range(random.choice((1, 1, 2))):
            fields = random.choice(FIELD_MUTATIONS)(random, fields)
    data = b"".join(piece for _, piece in fields)
    if choice >= 0.88:
        for _ in range(random.choice((1, 1, 2, 8))):
            data = random.choice(BYTE_MUTATIONS)(random, data)
    return architecture, data


def valid_model(architecture: str, random: Random) -> Model:
    """A model of one layer that can be run."""
    keys, tensors = _network(architecture, random.choice(_WEIGHTS))
    model = Model([Key("general.architecture", ValueType.STRING, architecture.encode())], [])
    model.keys += [Key(key.name, key.kind, copy(key.value), key.is_array) for key in keys]
    model.keys += _vocabulary(random)
    if random.random() < 0.7:
        model.keys.append(Key(_TEMPLATE, ValueType.STRING, random.choice(_TEMPLATES)))
    model.tensors = [Tensor(t.name, list(t.dimensions), t.kind, t.data) for t in tensors]
    return model


@cache
def _network(architecture: str, type: GgmlType) -> tuple[list[Key], list[Tensor]]:
    """Its keys and tensors; matrices whose rows are whole blocks have the type."""
    fixture = Fixture.load(architecture).first_layers(1)
    keys = []
    for name, value in fixture.metadata.items():
        full = name if name.startswith(SHARED_KEYS) else f"{architecture}.{name}"
        several = isinstance(value, list)
        kind = _typed(value[0])[0] if several else _typed(value)[0]
        values = [_typed(item)[1] for item in value] if several else _typed(value)[1]
        keys.append(Key(full, kind, values, is_array=several))
    tensors = []
    for name, values in fixture.tensors().items():
        matrix = values.ndim > 1 and name.endswith(".weight") and "_inp" not in name
        kind = type if matrix and values.shape[-1] % type.block_size == 0 else GgmlType.F32
        data = quant.encode(values, kind).tobytes()
        tensors.append(Tensor(name, list(reversed(values.shape)), kind, data))
    return keys, tensors


def _typed(value: float | str) -> tuple[ValueType, Any]:
    if isinstance(value, str):
        return ValueType.STRING, value.encode()
    if isinstance(value, bool):
        return ValueType.BOOL, int(value)
    if isinstance(value, float):
        return ValueType.FLOAT32, value
    return (ValueType.UINT32 if value >= 0 else ValueType.INT32), value


def _vocabulary(random: Random) -> list[Key]:
    kind = random.choice(("llama", "llama", "gpt2", "bert", "t5", "rwkv"))
    tokens = ["<unk>", "<s>", "</s>", "[CLS]", "[SEP]", "<|im_start|>", "<|im_end|>"]
    types = [2, 3, 3, 3, 3, 3, 4]
    tokens += ["▁", "▁a", "ab", "##b", "Ġ", "Ġa", *(chr(letter) for letter in range(97, 123))]
    tokens += [f"<0x{byte:02X}>" for byte in range(VOCABULARY - len(tokens))]
    if kind == "rwkv":
        tokens = [repr(token) for token in tokens]
    types += [6 if token.startswith("<0x") else 1 for token in tokens[len(types) :]]
    texts = [token.encode() for token in tokens]
    scores = [-float(place) for place in range(len(texts))]
    keys = [
        Key(f"{_PREFIX}model", ValueType.STRING, kind.encode()),
        Key(_TOKENS, ValueType.STRING, texts, is_array=True),
        Key(_TYPES, ValueType.INT32, types, is_array=True),
        Key(_SCORES, ValueType.FLOAT32, scores, is_array=True),
        Key(f"{_PREFIX}bos_token_id", ValueType.UINT32, 3 if kind == "bert" else 1),
        Key(f"{_PREFIX}eos_token_id", ValueType.UINT32, 2),
        Key(f"{_PREFIX}unknown_token_id", ValueType.UINT32, 0),
        Key(f"{_PREFIX}seperator_token_id", ValueType.UINT32, 4),
    ]
    if kind == "gpt2":
        keys.append(Key(_MERGES, ValueType.STRING, [b"a b", "Ġ a".encode()], is_array=True))
        keys.append(Key(f"{_PREFIX}pre", ValueType.STRING, random.choice((b"gpt-2", b"llama-bpe"))))
    return keys


def _fitting(kind: ValueType, value: Any) -> Any:
    """A value that the type can hold."""
    if kind is ValueType.STRING:
        return value if isinstance(value, bytes) else str(value).encode()
    number = len(value) if isinstance(value, bytes) else value
    if kind in (ValueType.FLOAT32, ValueType.FLOAT64):
        return max(-3e38, min(3e38, float(number))) if number == number else number
    if isinstance(number, float):
        number = int(number) if abs(number) < 1e18 else 2**62
    if kind is ValueType.BOOL:
        return number & 1
    size = len(encode(kind, 0))
    signed = kind.name.startswith("INT")
    return int.from_bytes(
        (number % 2 ** (8 * size)).to_bytes(size, "little"), "little", signed=signed
    )


def _value(random: Random, kind: ValueType) -> Any:
    if kind is ValueType.STRING:
        return random.choice(_TEXTS)
    if kind in (ValueType.FLOAT32, ValueType.FLOAT64):
        return random.choice(_FLOATS)
    return _fitting(kind, random.choice(_INTEGERS))


def _scalar_kind(random: Random) -> ValueType:
    return random.choice([kind for kind in ValueType if kind is not ValueType.ARRAY])


def _change_value(random: Random, model: Model) -> None:
    """Another value of the same type; most often a number of the network."""
    plain = [key for key in model.keys if not key.is_array]
    if plain:
        key = random.choice(plain)
        key.value = _value(random, key.kind)


def _change_type(random: Random, model: Model) -> None:
    """The same value, as far as can be, of another type."""
    if not model.keys:
        return
    key = random.choice(model.keys)
    key.kind = _scalar_kind(random)
    values = key.value if key.is_array else [key.value]
    values = [_fitting(key.kind, value) for value in values]
    if key.is_array and random.random() < 0.3:
        key.is_array, key.value = False, (values or [_value(random, key.kind)])[0]
    else:
        key.value = values if key.is_array else values[0]


def _make_array(random: Random, model: Model) -> None:
    """A list in place of one value, or a list of another length."""
    if not model.keys:
        return
    key = random.choice(model.keys)
    values = key.value if key.is_array else [key.value]
    count = random.choice((0, 1, 2, 3, len(values) - 1, len(values) + 1, 2 * len(values), 1000))
    key.is_array = True
    key.value = (values * (count // max(1, len(values)) + 1))[: max(0, count)]


def _drop_key(random: Random, model: Model) -> None:
    if model.keys:
        del model.keys[random.randrange(len(model.keys))]


def _repeat_key(random: Random, model: Model) -> None:
    """A second key of the same name, or one key with the name of another."""
    if model.keys:
        key = random.choice(model.keys)
        name = random.choice((key.name, random.choice(model.keys).name, key.name + ".x"))
        model.keys.append(Key(name, key.kind, key.value, key.is_array))


def _add_key(random: Random, model: Model) -> None:
    """A key that belongs to another architecture, or to none of them."""
    own = model.find("general.architecture")
    prefix = own.value.decode("utf-8", "replace") if own and isinstance(own.value, bytes) else "x"
    name = random.choice(_known_keys())
    full = name if name.startswith(("tokenizer.", "general.", "split.")) else f"{prefix}.{name}"
    kind = _scalar_kind(random)
    if random.random() < 0.25:
        values = [_value(random, kind) for _ in range(random.choice((0, 1, 2, 61)))]
        model.keys.append(Key(full, kind, values, is_array=True))
    else:
        model.keys.append(Key(full, kind, _value(random, kind)))


@cache
def _known_keys() -> tuple[str, ...]:
    found = {key for name in architectures() for key in Fixture.load(name).metadata}
    extra = ("add_bos_token", "add_eos_token", "add_space_prefix", "remove_extra_whitespaces",
             "precompiled_charsmap", "pre", "fim_pre_token_id", "eot_token_id", "token_type_count",
             "normalizer.lowercase", "merges")  # fmt: skip
    found |= {_PREFIX + name for name in extra}
    found |= {"general.alignment", "general.name", "general.file_type", "split.count", "split.no"}
    found |= {
        "attention.sliding_window",
        "rope.scaling.type",
        "rope.scaling.factor",
        "pooling_type",
    }
    found |= {"vocab_size", "rope.dimension_count", "expert_used_count", "expert_count"}
    return tuple(sorted(found))


def _change_shape(random: Random, model: Model) -> None:
    if not model.tensors:
        return
    tensor = random.choice(model.tensors)
    place = random.randrange(len(tensor.dimensions)) if tensor.dimensions else 0
    match random.randrange(6):
        case 0:
            tensor.dimensions.reverse()
        case 1:
            tensor.dimensions = [*tensor.dimensions, random.choice((0, 1, 2, 2**32))][:5]
        case 2:
            tensor.dimensions = tensor.dimensions[:-1]
        case 3:
            tensor.dimensions[place : place + 1] = [random.choice(_INTEGERS) % 2**63]
        case 4:
            tensor.dimensions[place : place + 1] = [(tensor.dimensions or [1])[place] + 1]
        case _:
            elements = len(tensor.data) // 4
            tensor.dimensions = random.choice(([elements], [1, elements], [elements, 1, 1, 1]))
    if random.random() < 0.6:  # as many bytes as the shape asks for
        tensor.data = _resized(tensor.data, tensor.dimensions, tensor.kind)


def _change_tensor_type(random: Random, model: Model) -> None:
    if not model.tensors:
        return
    tensor = random.choice(model.tensors)
    tensor.kind = random.choice((*GgmlType, random.choice(_INTEGERS) % 2**32))
    if random.random() < 0.8:
        tensor.data = _resized(tensor.data, tensor.dimensions, tensor.kind)


def _resized(data: bytes, dimensions: list[int], kind: int) -> bytes:
    """Cut the bytes, or repeat them, to fill a tensor; none is made larger than 1 MiB."""
    elements = 1
    for dimension in dimensions:
        elements *= dimension
    try:
        block = GgmlType(kind)
    except ValueError:
        return data
    size = elements // block.block_size * block.block_bytes
    if size > 1 << 20 or not data:
        return data
    return (data * (size // len(data) + 1))[:size]


def _change_tensor_name(random: Random, model: Model) -> None:
    if not model.tensors:
        return
    tensor, other = random.choice(model.tensors), random.choice(model.tensors)
    names = (
        other.name,
        tensor.name.upper(),
        "blk.7.attn_q.weight",
        "output.weight",
        "é",
        "x" * 300,
    )
    tensor.name = random.choice(names)


def _drop_tensor(random: Random, model: Model) -> None:
    if random.random() < 0.1:
        model.tensors.clear()
    elif model.tensors:
        del model.tensors[random.randrange(len(model.tensors))]


def _swap_tensors(random: Random, model: Model) -> None:
    """Give two tensors each other's names, or have one twice."""
    if len(model.tensors) < 2:
        return
    one, two = random.sample(model.tensors, 2)
    if random.random() < 0.7:
        one.name, two.name = two.name, one.name
    else:
        model.tensors.append(Tensor(two.name, list(one.dimensions), one.kind, one.data))


def _spoil_weights(random: Random, model: Model) -> None:
    """Numbers that no training gives: infinite, not a number, very large, any bits."""
    for tensor in random.sample(model.tensors, min(len(model.tensors), random.choice((1, 2, 9)))):
        piece = random.choice((
            random.randbytes(64), struct.pack("<f", float("nan")), struct.pack("<f", float("inf")),
            struct.pack("<f", 3e38), bytes(4), b"\xff" * 4,
        ))  # fmt: skip
        if random.random() < 0.5 or len(tensor.data) < 64:
            tensor.data = (piece * (len(tensor.data) // len(piece) + 1))[: len(tensor.data)]
        else:
            place = random.randrange(len(tensor.data) - 63)
            tensor.data = tensor.data[:place] + piece + tensor.data[place + len(piece) :]


def _spoil_tokens(random: Random, model: Model) -> None:
    """Tokens that are equal, empty, long, no UTF-8, or fewer than they should be."""
    key = model.find(random.choice((_TOKENS, _TOKENS, _MERGES)))
    if key is None or not key.is_array or not key.value:
        return
    values = list(key.value)
    match random.randrange(5):
        case 0:
            values = [values[0]] * len(values)
        case 1:
            values = [b""] * len(values)
        case 2:
            values = values[: random.randrange(len(values))]
        case _:
            for _ in range(random.choice((1, 3, 20))):
                values[random.randrange(len(values))] = random.choice(
                    (*_TEXTS, random.randbytes(random.choice((1, 3, 40))))
                )
    key.kind, key.value = ValueType.STRING, values


def _spoil_token_numbers(random: Random, model: Model) -> None:
    """Scores and types of tokens, or their number."""
    key = model.find(random.choice((_TYPES, _SCORES)))
    if key is None or not key.is_array:
        return
    values = list(key.value)
    if random.random() < 0.5:
        values = (values * 2)[: max(0, len(values) + random.choice((-60, -1, 1, 5, 61)))]
        values += [_fitting(key.kind, 2)] * random.choice((0, 0, 3))
    else:
        for place in range(len(values)):
            if random.random() < 0.3:
                values[place] = _value(random, key.kind)
    key.value = values


def _spoil_special_id(random: Random, model: Model) -> None:
    names = ("bos", "eos", "eot", "eom", "unknown", "seperator", "padding", "mask", "fim_pre")
    name = f"{_PREFIX}{random.choice(names)}_token_id"
    kind = random.choice((ValueType.UINT32, ValueType.INT32, ValueType.INT64, ValueType.UINT64))
    model.keys = [key for key in model.keys if key.name != name]
    model.keys.append(Key(name, kind, _value(random, kind)))


def _spoil_charsmap(random: Random, model: Model) -> None:
    """SentencePiece's map of characters: a length, a trie, texts; all of it untrusted."""
    size = random.choice((0, 3, 4, 8, 64, 1024))
    first = struct.pack("<I", random.choice((0, 4, 60, 64, 1000, 2**31, 2**32 - 1)))
    blob = list((first + random.randbytes(size))[: max(0, size)])
    kind = random.choice((ValueType.UINT8, ValueType.INT8))
    values = [_fitting(kind, byte) for byte in blob]
    model.keys.append(Key(f"{_PREFIX}precompiled_charsmap", kind, values, is_array=True))
    if kind_key := model.find(f"{_PREFIX}model"):
        kind_key.kind, kind_key.value, kind_key.is_array = ValueType.STRING, b"t5", False


def _spoil_template(random: Random, model: Model) -> None:
    model.keys = [key for key in model.keys if key.name != _TEMPLATE]
    text = random.choice(_TEMPLATES)
    match random.randrange(8):
        case 0:
            text = random.choice(ESCAPES).encode()
        case 1:  # seldom: each takes the time that a template may take
            text = random.choice(BOMBS).encode() if random.random() < 0.2 else text
        case 2 | 3:
            text = random.choice(_BROKEN_TEMPLATES)
        case _:
            for _ in range(random.choice((1, 2, 5))):
                text = random.choice(BYTE_MUTATIONS)(random, text)
    model.keys.append(Key(_TEMPLATE, ValueType.STRING, text))


_MODEL_MUTATIONS: list[Callable[[Random, Model], None]] = [
    _change_value,
    _change_value,
    _change_value,
    _change_value,
    _change_type,
    _make_array,
    _drop_key,
    _repeat_key,
    _add_key,
    _add_key,
    _change_shape,
    _change_tensor_type,
    _change_tensor_name,
    _drop_tensor,
    _swap_tensors,
    _spoil_weights,
    _spoil_tokens,
    _spoil_token_numbers,
    _spoil_special_id,
    _spoil_charsmap,
    _spoil_template,
]
