from common import HELLO, KEY, LONG, PERSON, URL, WEATHER, error_of, get_weather, tell
from pydantic import BaseModel
from pydantic_ai import Agent, NativeOutput
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

model = OpenAIChatModel("any", provider=OpenAIProvider(base_url=f"{URL}/v1", api_key=KEY))


class Person(BaseModel):
    name: str
    age: int


def chat():
    return Agent(model).run_sync(HELLO).output


async def stream():
    async with Agent(model).run_stream(HELLO) as run:
        return "".join([text async for text in run.stream_text(delta=True, debounce_by=None)])


def structured():
    native = Agent(model, output_type=NativeOutput(Person)).run_sync(PERSON).output
    by_tool = Agent(model, output_type=Person).run_sync("The final person.").output
    assert native == by_tool, (native, by_tool)
    return native.model_dump()


def tools():
    return Agent(model, tools=[get_weather]).run_sync(WEATHER).output


def error():
    return error_of(lambda: Agent(model).run_sync(LONG))


tell(chat, stream, structured, tools, error)
