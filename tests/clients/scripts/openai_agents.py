from agents import (
    Agent,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from common import HELLO, KEY, LONG, PERSON, URL, WEATHER, error_of, get_weather, tell
from openai import AsyncOpenAI
from pydantic import BaseModel

set_tracing_disabled(True)
client = AsyncOpenAI(base_url=f"{URL}/v1", api_key=KEY, max_retries=0)
MODELS = (OpenAIChatCompletionsModel("any", client), OpenAIResponsesModel("any", client))


class Person(BaseModel):
    name: str
    age: int


def agent(model, **fields):
    return Agent(name="agent", instructions="Help.", model=model, **fields)


async def chat():
    outputs = [(await Runner.run(agent(model), HELLO)).final_output for model in MODELS]
    assert outputs[0] == outputs[1], outputs
    return outputs[0]


async def stream():
    texts = []
    for model in MODELS:
        run = Runner.run_streamed(agent(model), HELLO)
        texts.append(
            "".join(
                [
                    event.data.delta
                    async for event in run.stream_events()
                    if event.type == "raw_response_event"
                    and event.data.type == "response.output_text.delta"
                ]
            )
        )
    assert texts[0] == texts[1], texts
    return texts[0]


async def structured():
    found = [
        (await Runner.run(agent(model, output_type=Person), PERSON)).final_output
        for model in MODELS
    ]
    assert found[0] == found[1], found
    return found[0].model_dump()


async def tools():
    run = await Runner.run(agent(MODELS[0], tools=[function_tool(get_weather)]), WEATHER)
    return run.final_output


async def tools_responses():
    run = await Runner.run(agent(MODELS[1], tools=[function_tool(get_weather)]), WEATHER)
    return run.final_output


def error():
    return error_of(lambda: Runner.run(agent(MODELS[0]), LONG))


tell(chat, stream, structured, tools, tools_responses, error)
