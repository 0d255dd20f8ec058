"""``rag-eval reproduce``: a benchmark is written, run like any other, and told beside what was published."""

import json
from pathlib import Path

from tests.cli.commands import rag_eval


def test_other_data_has_other_figures_and_is_named(tmp_path: Path) -> None:
    corpora = tmp_path / "data" / "corpora"
    corpora.mkdir(parents=True)
    text = "The last ferry leaves at ten. Nobody swims. " * 40
    (corpora / "ferries.md").write_text(text)
    reference = json.dumps([{"content": text[:29], "start_index": 0, "end_index": 29}]).replace('"', '""')
    table = f'question,references,corpus_id\nWhen does it leave?,"{reference}",ferries\n'
    (tmp_path / "data" / "questions_df.csv").write_text(table)
    done = rag_eval("reproduce", "chroma", "data", cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    assert "0 of 8 published figures come out." in done.stdout
    assert "Not the data of the publication: questions_df.csv, corpora/chatlogs.md" in done.stdout
    assert "13.9 ± 10.4" in done.stdout
    told = rag_eval("reproduce", "chroma", "data", "--json", cwd=tmp_path)
    figures = json.loads(told.stdout)["figures"]
    assert (told.returncode, [one["published"] for one in figures][:2]) == (1, ["6.7 ± 5.2", "13.9 ± 10.4"])
    # The reference is in the first chunk, which both placements have at the beginning.
    assert figures[3]["reproduced"] == figures[3]["ours"]["true places"] != "0.0 ± 0.0"
    again = rag_eval("run", "reproduce/chroma/benchmark.yaml", cwd=tmp_path)
    assert "Nothing computed" in again.stdout, again.stderr
