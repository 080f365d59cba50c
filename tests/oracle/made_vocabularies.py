"""Small vocabularies made here, for the kinds and pre-tokenizers no file at hand has.

Each function writes a vocabulary-only GGUF file that llama.cpp and Ingot both read.
"""

import random
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import product
from pathlib import Path

import gguf
import numpy as np

SPACE = "\u2581"
PLACEHOLDER = "gpt-2"

# The families Ingot lists, by llama.cpp's name for each.
PRE_TOKENIZERS = (
    "default",
    "gpt-2",
    "llama-bpe",
    "qwen2",
    "qwen35",
    "deepseek-llm",
    "deepseek-coder",
    "deepseek-v3",
    "deepseek-r1-qwen",
    "falcon",
    "starcoder",
    "refact",
    "command-r",
    "mpt",
    "smollm",
    "stablelm2",
    "olmo",
    "dbrx",
    "poro-chat",
    "chatglm-bpe",
    "viking",
    "jais",
    "tekken",
    "smaug-bpe",
    "codeshell",
    "bloom",
    "gpt-4o",
    "superbpe",
    "exaone",
    "minerva-7b",
    "llama4",
    "kimi-k2",
)


class TokenType(IntEnum):
    """How GGUF marks a token."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


@dataclass(frozen=True, slots=True)
class Unigram:
    """A Unigram vocabulary as the file holds it: pieces with their log probabilities."""

    pieces: list[str]
    scores: list[float]  # exact in float32
    types: list[TokenType]
    unknown: int = 2


def writer(path: Path, architecture: str, model: str) -> gguf.GGUFWriter:
    out = gguf.GGUFWriter(path, architecture)
    out.add_tokenizer_model(model)
    return out


def close(out: gguf.GGUFWriter) -> None:
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.close()


def byte_letters() -> list[str]:
    """Return the character that byte-level BPE writes for each byte."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    moved = iter(range(256, 512))
    return [chr(byte if byte in plain else next(moved)) for byte in range(256)]


def write_pairs(path: Path) -> None:
    """Write a BPE vocabulary that merges every two bytes, in its own order.

    Inside a word nearly every byte finds a partner, so ids tell where the words began and ended
    whatever the text. A few longer tokens that no merge reaches show whether merges are ignored
    for words that are tokens.
    """
    letters = byte_letters()
    pairs = list(product(letters, letters))
    random.Random(1).shuffle(pairs)
    whole = ["Ġthe", "123", "Hello", "Ċ", "ĠĠĠĠ", "'re", "ä½łå¥½", "ĠWorld"]
    special = ["<|bos|>", "<|eos|>", "<|im_start|>", "<|im_end|>"]
    user = ["<tool>", "[[x]]"]
    tokens = letters + ["".join(pair) for pair in pairs]
    tokens += [text for text in whole if text not in set(tokens)]
    types = [TokenType.NORMAL] * len(tokens)
    types += [TokenType.CONTROL] * len(special) + [TokenType.USER_DEFINED] * len(user)
    tokens += special + user
    out = writer(path, "llama", "gpt2")
    out.add_tokenizer_pre(PLACEHOLDER)
    out.add_token_list(tokens)
    out.add_token_types(types)
    out.add_token_merges([f"{left} {right}" for left, right in pairs])
    out.add_bos_token_id(tokens.index("<|bos|>"))
    out.add_eos_token_id(tokens.index("<|eos|>"))
    close(out)


def with_pre_tokenizer(pairs: bytes, name: str) -> bytes:
    """Return the bytes of `write_pairs`' file with another pre-tokenizer's name."""
    old, new = (struct.pack("<Q", len(n)) + n.encode() for n in (PLACEHOLDER, name))
    assert pairs.count(old) == 1
    return pairs.replace(old, new)


def write_end_names(path: Path, names: Sequence[str]) -> None:
    """Write a byte-level vocabulary that has tokens of these names, all typed as normal text."""
    letters = byte_letters()
    out = writer(path, "llama", "gpt2")
    out.add_tokenizer_pre("gpt-2")
    out.add_token_list([*letters, "in", *names])
    out.add_token_types([TokenType.NORMAL] * (len(letters) + 1 + len(names)))
    out.add_token_merges(["i n"])
    out.add_bos_token_id(0)
    out.add_eos_token_id(0)
    close(out)


def write_sentencepiece(
    path: Path, space_prefix: bool, add_bos: bool, add_eos: bool, seed: int = 4
) -> None:
    """Write a SentencePiece vocabulary full of tied scores: which pair comes first is visible."""
    rng = random.Random(seed)
    letters = [SPACE, *"abcdehilnorst.,'1239", "é", "你", "好", "😀", "\n"]
    known = dict.fromkeys(letters)
    while len(known) < 4000:
        known["".join(rng.choices(list(known)[:300], k=2))[:12]] = None
    first = ["<unk>", "<s>", "</s>"]
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
    user = ["<user>", SPACE * 3, "x y", "\n\n"]
    normal = [text for text in known if text not in user]
    tokens = [*first, *bytes_, *normal, *user]
    types = [TokenType.UNKNOWN, TokenType.CONTROL, TokenType.CONTROL]
    types += [TokenType.BYTE] * len(bytes_)
    types += rng.choices((TokenType.NORMAL, TokenType.UNUSED), (50, 1), k=len(normal))
    types += [TokenType.USER_DEFINED] * len(user)
    out = writer(path, "llama", "llama")
    out.add_tokenizer_pre("default")
    out.add_token_list(tokens)
    out.add_token_scores([float(-rng.randint(1, 12)) for _ in tokens])
    out.add_token_types(types)
    out.add_add_space_prefix(space_prefix)
    out.add_add_bos_token(add_bos)
    out.add_add_eos_token(add_eos)
    out.add_bos_token_id(1)
    out.add_eos_token_id(2)
    out.add_unk_token_id(0)
    close(out)


def write_character_bpe(path: Path, seed: int = 5) -> None:
    """Write a vocabulary that merges characters; some merges make no token, runs of line ends do.

    It says that no BOS is added, which nobody believes.
    """
    rng = random.Random(seed)
    letters = [SPACE, *"abcdehilnorst.,'1239", "é", "你", "好", "\n"]
    made, merges = dict.fromkeys(letters), {}
    while len(merges) < 4000:
        left, right = rng.choices(list(made)[:300], k=2)
        if ("\n" in left + right and {*left, *right} != {"\n"}) or len(left + right) > 12:
            continue
        merges[f"{left} {right}"] = None
        made[left + right] = None
    first = ["<pad>", "<eos>", "<bos>", "<unk>"]
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
    user = ["<|turn>", "<turn|>"]
    whole = [text for text in made if text in letters or rng.random() < 0.95]
    ends = ["\n" * count for count in (2, 3, 5)]
    normal = [*whole, *(text for text in ends if text not in whole)]
    out = writer(path, "gemma4", "gemma4")
    out.add_token_list([*first, *bytes_, *normal, *user])
    out.add_token_scores([0.0] * (len(first) + len(bytes_) + len(normal) + len(user)))
    types = [TokenType.CONTROL] * 3 + [TokenType.UNKNOWN] + [TokenType.BYTE] * len(bytes_)
    types += [TokenType.NORMAL] * len(normal) + [TokenType.USER_DEFINED] * len(user)
    out.add_token_types(types)
    out.add_token_merges(list(merges))
    out.add_bos_token_id(2)
    out.add_eos_token_id(1)
    out.add_unk_token_id(3)
    out.add_add_bos_token(False)
    close(out)


def make_unigram(seed: int = 2) -> Unigram:
    rng = random.Random(seed)
    syllables = [
        "a",
        "e",
        "i",
        "o",
        "th",
        "s",
        "ing",
        "er",
        "é",
        "ß",
        "你",
        "好",
        "か",
        "😀",
        "1",
        "2",
    ]
    pieces = ["<pad>", "</s>", "<unk>"]
    pieces += [
        SPACE,
        *(chr(c) for c in range(0x21, 0x7F)),
        *"éßñæøüабвгд你好世界かな😀🦙\u0301\xa0",
    ]
    wanted = len(pieces) + 3000
    known = dict.fromkeys(pieces)
    while len(known) < wanted:
        word = "".join(rng.choices(syllables + list("bcdfgklmnprtuwy.,'-"), k=rng.randint(2, 5)))
        known[rng.choice((SPACE, SPACE, "", "", SPACE * 2)) + word] = None
    normal = list(known)[3:]
    scores = [float(np.float32(-rng.uniform(2.0, 14.0))) for _ in normal]
    user = ["<extra_0>", "<extra_1>"]
    types = [TokenType.CONTROL, TokenType.CONTROL, TokenType.UNKNOWN]
    types += [TokenType.NORMAL] * len(normal) + [TokenType.USER_DEFINED] * len(user)
    return Unigram([*known, *user], [0.0, 0.0, 0.0, *scores, 0.0, 0.0], types)


def write_unigram(
    path: Path,
    vocabulary: Unigram,
    charsmap: bytes = b"",
    space_prefix: bool = True,
    merge_spaces: bool = False,
) -> None:
    out = writer(path, "t5", "t5")
    out.add_tokenizer_pre("default")
    out.add_token_list(vocabulary.pieces)
    out.add_token_scores(vocabulary.scores)
    out.add_token_types(vocabulary.types)
    out.add_add_space_prefix(space_prefix)
    out.add_remove_extra_whitespaces(merge_spaces)
    out.add_add_bos_token(False)
    out.add_add_eos_token(True)
    out.add_eos_token_id(1)
    out.add_unk_token_id(vocabulary.unknown)
    out.add_pad_token_id(0)
    if charsmap:
        out.add_precompiled_charsmap(charsmap)
    close(out)


def make_charsmap(replacements: dict[str, str]) -> bytes:
    """Compile what SentencePiece calls a precompiled map: longest match of a key, its replacement.

    The trie is a double array addressed by exclusive or: the child of a node at `p` whose block
    starts at `x` lies at `x ^ byte`, the node holds `p ^ x`, and the leaf at `x ^ 0` the place of
    the replacement among the zero-terminated texts after the trie.
    """
    children: list[dict[int, int]] = [{}]
    leaves: dict[int, int] = {}
    texts = bytearray()
    for key, replacement in sorted(replacements.items()):
        node = 0
        for byte in key.encode():
            if byte not in children[node]:
                children[node][byte] = len(children)
                children.append({})
            node = children[node][byte]
        leaves[node] = len(texts)
        texts += replacement.encode() + b"\0"
    # One block of 256 places for each node's children: wasteful, and plain to read.
    units = np.zeros(256 * (len(children) + 1), dtype="<u4")
    place = {0: 0}
    for node, below in enumerate(children):
        block = 256 * (node + 1)
        units[place[node]] |= (place[node] ^ block) << 10
        if node in leaves:
            units[place[node]] |= 1 << 8
            units[block] = leaves[node] | 1 << 31
        for byte, child in below.items():
            place[child] = block ^ byte
            units[place[child]] |= byte
    return struct.pack("<I", units.nbytes) + units.tobytes() + bytes(texts)


def write_rwkv(path: Path, seed: int = 3) -> None:
    """Write a greedy-trie vocabulary: every byte, and longer byte strings written with escapes."""
    rng = random.Random(seed)
    words = [b"the", b" the", b"ing", b"\n\n", b"\r\n", b"    ", "é".encode(), "你好".encode()]
    words += [b"\\x", b"'s", b'"', "🦙".encode(), "🦙".encode()[:2], b"\x00\x00", b"\xff\xfe"]
    known = dict.fromkeys([bytes([byte]) for byte in range(256)] + words)
    while len(known) < 3000:
        known[b"".join(rng.choices(list(known), k=2))[:9]] = None
    tokens = ["<s>", *(escaped(text) for text in known)]
    types = [TokenType.CONTROL] + [TokenType.NORMAL] * len(known)
    out = writer(path, "rwkv6", "rwkv")
    out.add_token_list(tokens)
    out.add_token_types(types)
    close(out)


def escaped(text: bytes) -> str:
    """Write bytes the way RWKV files do: printable ASCII as it is, the rest as hexadecimal."""
    special = {0x5C: "\\\\", 0x0A: "\\n", 0x0D: "\\r", 0x09: "\\t"}
    return "".join(
        special.get(byte) or (chr(byte) if 0x20 <= byte < 0x7F else f"\\x{byte:02x}")
        for byte in text
    )
