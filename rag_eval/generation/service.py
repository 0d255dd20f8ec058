"""A chat service by its address, with the key of the environment."""

from typing import TYPE_CHECKING, Any

from rag_eval.embedding.openai_client import OpenAIClient

if TYPE_CHECKING:
    import openai


class ChatService:
    """OpenAI, or a server that speaks its protocol, as a chat client: it has ``chat.completions.create``.

    ``base_url`` defaults to ``OPENAI_BASE_URL``, then to OpenAI's own; the key is ``OPENAI_API_KEY``. The key is not
    needed before the first request, so that an estimate, and work that is cached, can do without. ``timeout`` bounds
    the silence of a request, in seconds. Raises ``ConfigurationError`` on an address that is none, or, at the first
    request, where a key is needed.
    """

    def __init__(self, base_url: str | None = None, timeout: float = 120.0) -> None:
        self._client = OpenAIClient(base_url, None, timeout)
        self._timeout = timeout
        self.api_key = ""
        # The path chat.completions.create leads through this object, which connects only when it is walked to its end.
        self.chat = self.completions = self

    @property
    def base_url(self) -> str:
        """The server, for its name and its prices."""
        return f"https://{self._client.server}"

    def connect(self) -> "openai.OpenAI":
        """Make ready for requests; raises ``ConfigurationError`` where a key is needed, and asks nothing."""
        sdk = self._client.connect()
        self.api_key = sdk.api_key
        return sdk

    def create(self, **arguments: Any) -> Any:
        """Ask for a completion."""
        return self.connect().chat.completions.create(**arguments, timeout=self._timeout)
