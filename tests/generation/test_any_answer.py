"""Whatever a model answers, the ground truth is sound and every question is accounted for."""

import json
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from rag_eval import GenerationOptions, TokenLevelSyntheticDatasetGenerator, read_token_level, write_token_level
from rag_eval.ground_truth.check import check_against_corpus
from tests.generation.corpora import corpus_of

DOCUMENTS = {
    "a.md": "Alpha is red.\r\nAlpha is red.\r\n\0 The 👩🏽‍🦽 lift carries “nine” people up to floor 5.\u2028End.",
    "b.md": "<|endoftext|> Beta costs 12 kr. Gamma costs 13 kr. 漢字の締切は22時40分です。 Alpha is red.",
}
TEXTS = st.one_of(
    st.sampled_from(["Alpha is red.", "Beta costs 12 kr.", 'carries "nine"  people', "漢字の締切", "", " "]),
    st.text(max_size=30),
    st.text(alphabet=st.characters(categories=["Cs", "Cc", "Cf", "Lo"]), max_size=5),
)
QUESTIONS = st.lists(
    st.fixed_dictionaries(
        {
            "number": st.integers(-1, 4) | st.just(10**30),
            "question": st.sampled_from(["What colour is Alpha?", "What does Beta cost?", "x" * 700]) | TEXTS,
            "excerpts": st.lists(
                st.fixed_dictionaries(
                    {"document": st.sampled_from(["D1", "D2", "D9", ""]), "text": TEXTS, "before": TEXTS}
                ),
                max_size=3,
            ),
        }
    ),
    max_size=5,
)
ANSWERS = st.one_of(
    QUESTIONS.map(lambda questions: json.dumps({"questions": questions})),
    st.text(max_size=40),
    st.none(),
)


@settings(deadline=None, derandomize=True, max_examples=40)
@given(st.lists(ANSWERS, min_size=1, max_size=4), st.sampled_from(["stop", "length", None, "tool_calls"]))
def test_every_question_is_kept_sound_or_counted(answers: list[str | None], finish_reason: str | None) -> None:
    def create(model: str, messages: Any, response_format: Any) -> Any:
        content = answers[len(str(messages)) % len(answers)]
        return {"choices": [{"message": {"content": content}, "finish_reason": finish_reason}]}

    client = SimpleNamespace(chat=SimpleNamespace(completions=SimpleNamespace(create=create)))
    corpus = corpus_of(DOCUMENTS)
    with tempfile.TemporaryDirectory() as folder:
        options = GenerationOptions(cross_document=2, unanswerable=2, attempts=2)
        generator = TokenLevelSyntheticDatasetGenerator(client, corpus, model="any", options=options, workspace=folder)
        truth = generator.generate(3, upload_to_langsmith=False)
        report = generator.report
        assert (report.asked, report.unasked) == (10, 0)
        assert report.asked == report.kept + sum(dropped.count for dropped in report.dropped.values())
        assert report.kept == len(truth) == len({item.query.id for item in truth})
        check_against_corpus(truth, corpus)
        if truth:
            write_token_level(Path(folder) / "truth.jsonl", truth)
            assert read_token_level(Path(folder) / "truth.jsonl") == truth
        again = TokenLevelSyntheticDatasetGenerator(client, corpus, model="any", options=options, workspace=folder)
        assert again.generate(3, upload_to_langsmith=False) == truth
        assert again.report.total.fresh.calls == 0
