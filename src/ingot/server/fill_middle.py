"""From what stands before and behind a gap to the prompt of a model that fills it."""

from collections.abc import Sequence
from dataclasses import dataclass

from ingot.errors import TokenizerError
from ingot.tokenizer import Tokenizer

_NEEDED = {"fim_pre": "prefix", "fim_suf": "suffix", "fim_mid": "middle"}
# What models were trained on: the names of a project and of a file nobody has named.
_PROJECT, _FILE = "myproject\n", "filename\n"


@dataclass(frozen=True, slots=True)
class OtherFile:
    """A file that is not to be filled, but good to know."""

    name: str
    text: str


def middle_prompt(
    tokenizer: Tokenizer,
    prefix: str | Sequence[int],
    suffix: str,
    *,
    others: Sequence[OtherFile] = (),
    begun: str = "",
) -> list[int]:
    """The tokens of a prompt; `begun` is what the middle begins with.

    Where the vocabulary has tokens for projects and files, other files stand under their names;
    else their texts stand before the prefix.
    """
    ids = tokenizer.middle_ids
    if missing := [name for key, name in _NEEDED.items() if key not in ids]:
        named = ", ".join(missing)
        raise TokenizerError(f"this model cannot fill in the middle: it has no {named} token")

    def plain(text: str) -> list[int]:
        return tokenizer.encode(text, add_special=False)

    tokens = [tokenizer.bos_id] if tokenizer.adds_bos and tokenizer.bos_id is not None else []
    if others and "fim_rep" in ids:
        tokens += [ids["fim_rep"], *plain(_PROJECT)]
    for other in others:
        if "fim_sep" in ids:
            tokens += [ids["fim_sep"], *plain(other.name + "\n")]
        tokens += plain(other.text)
    if others and "fim_sep" in ids:
        tokens += [ids["fim_sep"], *plain(_FILE)]
    before = plain(prefix) if isinstance(prefix, str) else list(prefix)
    tokens += [ids["fim_pre"], *before, ids["fim_suf"], *plain(suffix), ids["fim_mid"]]
    return tokens + plain(begun)
