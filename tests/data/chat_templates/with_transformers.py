"""Renders a case with `transformers`, at the time that the cases agree on."""

from unittest.mock import patch

from jinja2.exceptions import TemplateError
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast
from transformers.utils import chat_template_utils

from data.chat_templates.cases import NOW, Case


def render(case: Case) -> str | None:
    """The text, or none where the template refuses the conversation."""
    family = case.family
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(WordLevel({"a": 0, "?": 1}, unk_token="?")),
        bos_token=family.bos,
        eos_token=family.eos,
    )
    with patch.object(chat_template_utils, "datetime") as clock:
        clock.now.return_value = NOW
        try:
            return str(
                tokenizer.apply_chat_template(
                    case.messages,
                    tools=case.tools,
                    documents=case.documents,
                    chat_template=family.source,
                    add_generation_prompt=case.add_generation_prompt,
                    tokenize=False,
                    **case.options,
                )
            )
        except (TemplateError, TypeError):
            return None
