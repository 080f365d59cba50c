from common import HELLO, KEY, LONG, PERSON, URL, WEATHER, error_of, get_weather, tell
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.llms import ChatMessage
from llama_index.llms.openai_like import OpenAILike
from pydantic import BaseModel

model = OpenAILike(
    model="any",
    api_base=f"{URL}/v1",
    api_key=KEY,
    is_chat_model=True,
    is_function_calling_model=True,
    should_use_structured_outputs=True,
    context_window=65536,
    max_retries=0,
)


class Person(BaseModel):
    name: str
    age: int


def messages(text):
    return [ChatMessage(role="user", content=text)]


def chat():
    return model.chat(messages(HELLO)).message.content


def stream():
    return "".join(chunk.delta or "" for chunk in model.stream_chat(messages(HELLO)))


def structured():
    found = model.as_structured_llm(Person).chat(messages(PERSON))
    return found.raw.model_dump()


async def tools():
    agent = FunctionAgent(tools=[get_weather], llm=model, system_prompt="Help.")
    return str(await agent.run(WEATHER))


def error():
    return error_of(lambda: model.chat(messages(LONG)))


tell(chat, stream, structured, tools, error)
