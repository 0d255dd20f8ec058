"""Chroma's public dataset, read from beside the repository."""

import csv
import json
from pathlib import Path

from rag_eval import Corpus, DocumentId, Query, TokenLevelGroundTruth

FOLDER = Path(__file__).parents[3] / "shared" / "data" / "chroma"


def chroma_dataset() -> tuple[Corpus, list[TokenLevelGroundTruth]] | None:
    """The five documents and the 472 questions with their references; None where the dataset is absent."""
    if not FOLDER.is_dir():
        return None
    corpus = Corpus.from_folder(FOLDER / "corpora")
    documents = corpus.by_id()
    truth = []
    with (FOLDER / "questions_df.csv").open(encoding="utf-8", newline="") as file:
        for number, row in enumerate(csv.DictReader(file)):
            document = documents[DocumentId(f"{row['corpus_id']}.md")]
            spans = [document.span(ref["start_index"], ref["end_index"]) for ref in json.loads(row["references"])]
            query = Query.from_text(row["question"], {"number": number})
            truth.append(TokenLevelGroundTruth(query, spans))
    return corpus, truth
