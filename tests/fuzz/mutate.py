"""Bad GGUF files without end: each number gives one file, always the same.

A file starts as a random, mostly valid one, made field by field. Then its fields are
spoiled where a parser may stumble (counts, lengths, types, offsets, names), or its bytes
are, or it is random from the start. Some files stay valid, on purpose.
"""

from collections.abc import Callable
from random import Random

from fuzz.craft import Craft, u32, u64
from ingot.gguf import GgmlType, ValueType

Fields = list[tuple[str, bytes]]

_NAMES = ["a", "general.architecture", "general.name", "tokens", "é", "x" * 70, "blk.0.w", "t"]
_SPLIT_KEYS = ["split.no", "split.count", "split.tensors.count"]
_STRINGS = [b"", b"a", b"llama", "naïve".encode(), b"\xff\xfe", b"\xed\xa0\x80", b"z" * 300]
_NUMBERS = [0, 1, 2, 3, 4, 5, 7, 8, 9, 12, 13, 31, 32, 33, 48, 64, 127, 128, 255, 256, 4096]
_EDGES = [
    2**bits + delta for bits in (15, 16, 24, 28, 31, 32, 60, 61, 62, 63) for delta in (-1, 0, 1)
]
_HUGE = [2**64 - 1, 2**64 - 8, 2**64 - 24, 2**64 - 32, 2**64 - 33]
_DECISIVE = (
    "_count",
    ".array_length",
    ".length",
    ".n_dimensions",
    ".dimensions",
    "type",
    ".offset",
)


def make_file(seed: int, number: int) -> bytes:
    """File `number` of the sequence that `seed` names."""
    random = Random(f"{seed}:{number}")
    choice = random.random()
    if choice < 0.03:
        return _noise(random)
    fields = random_craft(random).fields()
    if choice < 0.08:
        return _join(fields)
    if choice < 0.80:
        for _ in range(random.choice((1, 1, 1, 2, 3, 5))):
            fields = random.choice(FIELD_MUTATIONS)(random, fields)
    data = _join(fields)
    if choice >= 0.70:
        for _ in range(random.choice((1, 1, 2, 4, 16))):
            data = random.choice(BYTE_MUTATIONS)(random, data)
    return data


def random_craft(random: Random) -> Craft:
    """A file that is valid most of the time."""
    craft = Craft(version=random.choice((2, 3, 3, 3)))
    names = random.sample(_NAMES, random.randint(0, 5))
    if random.random() < 0.3:
        names.append("general.alignment")
    if random.random() < 0.05:
        names += _SPLIT_KEYS
    for name in names:
        _add_key(random, craft, name)
    for number in range(random.randint(0, 4)):
        _add_tensor(random, craft, f"{random.choice(_NAMES[:6])}.{number}")
    return craft


def _add_key(random: Random, craft: Craft, name: str) -> None:
    if name == "general.alignment":
        craft.alignment = random.choice((1, 8, 16, 32, 64))
        craft.key(name, ValueType.UINT32, craft.alignment)
        return
    if name in _SPLIT_KEYS:
        craft.key(name, ValueType.UINT16, random.randint(0, 3))
        return
    kind = random.choice([kind for kind in ValueType if kind is not ValueType.ARRAY])
    if random.random() < 0.2:
        kind = ValueType.STRING
    if random.random() < 0.5:
        craft.key(name, kind, _value(random, kind))
    else:
        count = random.choice((0, 1, 2, 5, 40))
        craft.array(name, kind, [_value(random, kind) for _ in range(count)])


def _value(random: Random, kind: ValueType) -> bytes | int | float:
    if kind is ValueType.STRING:
        return random.choice(_STRINGS)
    if kind in (ValueType.FLOAT32, ValueType.FLOAT64):
        return random.choice((0.0, -1.5, 1e30, float("inf"), float("nan")))
    return random.randint(0, 1 if kind is ValueType.BOOL else 127)


def _add_tensor(random: Random, craft: Craft, name: str) -> None:
    kind = random.choice(list(GgmlType))
    dimensions = [kind.block_size * random.randint(1, 3)]
    dimensions += [random.randint(1, 3) for _ in range(random.randint(0, 3))]
    blocks = 1
    for dimension in dimensions:
        blocks *= dimension
    data = random.randbytes(blocks // kind.block_size * kind.block_bytes)
    craft.tensor(name, dimensions, kind, data, gap=random.choice((0, 0, 0, 1)))


def _join(fields: Fields) -> bytes:
    return b"".join(data for _, data in fields)


def _number(random: Random, size: int) -> int:
    """A number that is likely to hurt: small, at an edge, huge, or near the file's size."""
    kind = random.randrange(5)
    if kind == 0:
        return random.choice(_EDGES + _HUGE)
    if kind == 1:
        return random.getrandbits(64)
    if kind == 2:
        return max(0, size + random.randint(-40, 40))
    if kind == 3:
        return random.randint(0, size)
    return random.choice(_NUMBERS)


def _spoil_number(random: Random, fields: Fields) -> Fields:
    """Put another number into a field, most often into one that the parser goes by."""
    places = [i for i, (_, data) in enumerate(fields) if len(data) >= 4]
    decisive = [i for i in places if fields[i][0].endswith(_DECISIVE)]
    place = random.choice(decisive if decisive and random.random() < 0.8 else places)
    label, data = fields[place]
    number = _number(random, len(_join(fields)))
    new = u32(number % 2**32) if len(data) == 4 else u64(number % 2**64)
    fields[place] = (label, new + data[len(new) :])
    return fields


def _spoil_bytes(random: Random, fields: Fields) -> Fields:
    place = random.randrange(len(fields))
    label, data = fields[place]
    fields[place] = (label, random.randbytes(len(data)))
    return fields


def _resize(random: Random, fields: Fields) -> Fields:
    """Cut or extend a field, so that all that follows is read at the wrong place."""
    place = random.randrange(len(fields))
    label, data = fields[place]
    size = random.choice((0, len(data) // 2, max(0, len(data) - 1), len(data) + 1, len(data) + 8))
    fields[place] = (label, data[:size] + random.randbytes(max(0, size - len(data))))
    return fields


def _drop(random: Random, fields: Fields) -> Fields:
    del fields[random.randrange(len(fields))]
    return fields or [("nothing", b"")]


def _repeat(random: Random, fields: Fields) -> Fields:
    """Repeat a run of fields: with the counts raised to match, a duplicate."""
    start = random.randrange(len(fields))
    stop = min(len(fields), start + random.choice((1, 4, 6)))
    return fields[:stop] + fields[start:stop] + fields[stop:]


def _swap(random: Random, fields: Fields) -> Fields:
    one, two = random.randrange(len(fields)), random.randrange(len(fields))
    fields[one], fields[two] = fields[two], fields[one]
    return fields


def _raise_count(random: Random, fields: Fields) -> Fields:
    """Claim one more or one less key or tensor than there is."""
    for place, (label, data) in enumerate(fields):
        if label in ("tensor_count", "metadata_kv_count") and random.random() < 0.5:
            count = int.from_bytes(data, "little") + random.choice((-1, 1))
            fields[place] = (label, u64(count % 2**64))
    return fields


def _same_text(random: Random, fields: Fields) -> Fields:
    """Give one key or tensor the name of another, length included."""
    places = [i for i, (label, _) in enumerate(fields) if label.endswith((".key", ".name"))]
    if len(places) < 2:
        return fields
    one, two = random.sample(places, 2)
    fields[one - 1 : one + 1] = fields[two - 1 : two + 1]
    return fields


FIELD_MUTATIONS: list[Callable[[Random, Fields], Fields]] = [
    _spoil_number,
    _spoil_number,
    _spoil_number,
    _spoil_number,
    _spoil_bytes,
    _resize,
    _drop,
    _repeat,
    _swap,
    _raise_count,
    _same_text,
]


def _flip(random: Random, data: bytes) -> bytes:
    if not data:
        return data
    place = random.randrange(len(data))
    return data[:place] + bytes([data[place] ^ 1 << random.randrange(8)]) + data[place + 1 :]


def _overwrite(random: Random, data: bytes) -> bytes:
    place = random.randint(0, len(data))
    new = random.choice((u32(_number(random, len(data)) % 2**32), u64(random.choice(_HUGE))))
    return data[:place] + new + data[place + len(new) :]


def _cut(random: Random, data: bytes) -> bytes:
    return data[: random.randint(0, len(data))]


def _remove(random: Random, data: bytes) -> bytes:
    place = random.randint(0, len(data))
    return data[:place] + data[place + random.randint(1, 16) :]


def _insert(random: Random, data: bytes) -> bytes:
    place = random.randint(0, len(data))
    return data[:place] + random.randbytes(random.randint(1, 16)) + data[place:]


BYTE_MUTATIONS: list[Callable[[Random, bytes], bytes]] = [
    _flip,
    _overwrite,
    _cut,
    _remove,
    _insert,
]


def _noise(random: Random) -> bytes:
    """Random bytes, with and without a beginning that looks right."""
    start = random.choice((b"", b"GGUF", b"GGUF" + u32(3), b"GGUF" + u32(3) + u64(0) + u64(1)))
    return start + random.randbytes(random.randint(0, 400))
