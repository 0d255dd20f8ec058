"""What all settings have in common."""

from pydantic import BaseModel, ConfigDict


class Settings(BaseModel):
    """Validated settings: frozen, and with no key that is not declared."""

    model_config = ConfigDict(frozen=True, extra="forbid")
