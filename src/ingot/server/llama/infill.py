"""`/infill`: what stands between a prefix and a suffix, for editors."""

from fastapi import APIRouter
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from ingot.api import LLM
from ingot.server.body_limits import Many
from ingot.server.fill_middle import OtherFile, middle_prompt
from ingot.server.llama.body import LlamaBody
from ingot.server.llama.completion import Answers, complete
from ingot.server.sampling_body import Body
from ingot.server.sse import STREAMED
from ingot.server.state import Server


class ExtraFile(Body):
    """Another file of the project."""

    filename: str = "tmp"
    text: str


class InfillBody(LlamaBody):
    """What stands around a gap, and how it is to be filled."""

    input_prefix: str
    input_suffix: str
    input_extra: Many[ExtraFile] | None = None
    prompt: str = ""  # what the middle begins with


def router(server: Server) -> APIRouter:
    """The endpoint."""
    made = APIRouter()

    @made.post("/infill", response_model=Answers, responses=STREAMED)
    async def infill(body: InfillBody, http: HttpRequest) -> Response:
        """Fill a gap."""
        others = [OtherFile(extra.filename, extra.text) for extra in body.input_extra or ()]

        def tokens(llm: LLM) -> list[list[int]]:
            prompt = middle_prompt(
                llm.tokenizer,
                body.input_prefix,
                body.input_suffix,
                others=others,
                begun=body.prompt,
            )
            return [prompt]

        return await complete(server, body, http, tokens)

    return made
