import openai
import pytest
from pydantic import BaseModel

from tests.doubles.openai_server import OpenAIServer, Status


class Answer(BaseModel):
    question: str
    quotes: list[str]


def test_the_sdk_reads_chat_answers_and_errors() -> None:
    with (
        OpenAIServer(api_key="right") as server,
        openai.OpenAI(base_url=server.base_url, api_key="right", max_retries=0) as client,
    ):
        messages = [{"role": "user", "content": "say this"}]
        plain = client.chat.completions.create(model="any", messages=messages)
        assert plain.choices[0].message.content == "say this"
        assert plain.usage is not None
        assert plain.usage.total_tokens == 4
        server.reply = lambda body: '{"question": "why?", "quotes": ["a", "b"]}'
        parsed = client.chat.completions.parse(model="any", messages=messages, response_format=Answer)
        assert parsed.choices[0].message.parsed == Answer(question="why?", quotes=["a", "b"])
        assert server.requests[-1].body["response_format"]["json_schema"]["strict"]
        server.faults.append(Status(429, "slow down"))
        with pytest.raises(openai.RateLimitError, match="slow down"):
            client.chat.completions.create(model="any", messages=messages)
        with pytest.raises(openai.AuthenticationError):
            client.with_options(api_key="wrong").embeddings.create(model="any", input="text")
        with pytest.raises(openai.BadRequestError):
            client.embeddings.create(model="any", input=["text", ""])
