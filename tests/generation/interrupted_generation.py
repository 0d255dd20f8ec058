"""Generate with the settings of the tests: ``python -m tests.generation.interrupted_generation URL WORKSPACE``."""

import sys
from pathlib import Path

import openai

from rag_eval import GenerationOptions, TokenLevelSyntheticDatasetGenerator, write_token_level
from tests.generation.corpora import PLACES, harbours

MORE = ("Ytre Sula", "Havnes", "Nordvik", "Grimsøy")
OPTIONS = GenerationOptions(cross_document=2, unanswerable=2)


def generator_of(url: str, workspace: Path) -> TokenLevelSyntheticDatasetGenerator:
    client = openai.OpenAI(base_url=url, api_key="sk-test-0123456789-abcdef")
    return TokenLevelSyntheticDatasetGenerator(
        client, harbours(*PLACES, *MORE), model="tiny", options=OPTIONS, concurrency=2, workspace=workspace
    )


if __name__ == "__main__":
    folder = Path(sys.argv[2])
    made = generator_of(sys.argv[1], folder).generate(2, upload_to_langsmith=False)
    write_token_level(folder / f"{sys.argv[3]}.jsonl", made)
