"""Fill-in-the-middle prompts, from the text before and after a gap."""

from collections.abc import Sequence
from dataclasses import dataclass

from ingot.errors import TokenizerError
from ingot.tokenizer import Tokenizer

_NEEDED = {"fim_pre": "prefix", "fim_suf": "suffix", "fim_mid": "middle"}
# Names from the training data, for a project and a file without a name.
_PROJECT, _FILE = "myproject\n", "filename\n"


@dataclass(frozen=True, slots=True)
class OtherFile:
    """Another file of the project, as context."""

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
    """The tokens of a prompt; `begun` is the beginning of the middle.

    If the vocabulary has tokens for projects and files, other files come under their names;
    else their text comes before the prefix.
    """
    ids = tokenizer.middle_ids
    if missing := [name for key, name in _NEEDED.items() if key not in ids]:
        named = ", ".join(missing)
        raise TokenizerError(
            f"this model does not support fill-in-the-middle: it has no {named} token"
        )

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
