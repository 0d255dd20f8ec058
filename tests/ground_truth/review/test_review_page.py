"""The page in a real browser: keyboard first, documents inert, everything to be read and reached."""

from pathlib import Path

import pytest
from strategies import FRAGMENTS, known_texts

from rag_eval.ground_truth.truth_files import read_token_level
from tests.documents.made_files import pdf
from tests.ground_truth.review.review_files import FERRY, HOSTILE, queries_in, records, span, write_files
from tests.ground_truth.review.review_page import Opener, expect, press, said


def test_a_review_with_the_keyboard_alone(tmp_path: Path, opened: Opener) -> None:
    truth = write_files(tmp_path)
    aside = tmp_path / "truth.rejected.jsonl"
    page = opened(truth)
    expect(page.locator("#question")).to_have_text("When?")
    expect(page.locator("mark.current")).to_have_text("22:40")
    press(page, "ArrowDown", "k", "j")
    expect(page.locator("#question")).to_have_text("Boats?")
    press(page, "ArrowRight")
    expect(page.locator("mark.current")).to_have_text("zwei")
    press(page, "h", "ArrowUp")
    # Typed in one go: what is typed waits for what was typed before.
    press(page, "a", "r", "a")
    expect(page.locator("#counts")).to_have_text("3 of 4 reviewed, 1 rejected")
    assert [query["metadata"]["review"] for query in queries_in(truth)[:2]] == ["accepted", "accepted"]
    assert [query["query"] for query in queries_in(aside)] == ["Boats?"]
    expect(page.locator("#question")).to_have_text("Never?")
    expect(page.locator("#unanswerable")).to_be_visible()
    press(page, "a")
    said(page, "Every query is reviewed.")
    press(page, "u", "u", "u")
    said(page, "Undone and saved.")
    expect(page.locator("#question")).to_have_text("Boats?")
    assert [query["query"] for query in queries_in(truth)] == [record["query"] for record in records()]
    assert [query.get("metadata", {}).get("review") for query in queries_in(truth)] == ["accepted", None, None, None]


def test_every_key_is_listed_on_the_page(tmp_path: Path, opened: Opener) -> None:
    page = opened(write_files(tmp_path))
    for place in ("#keys", "#help-keys"):
        keys = set(page.locator(f"{place} kbd").all_text_contents())
        assert keys >= set("jkarenxyulh/d?f0") | {"↑", "↓", "←", "→"}
    press(page, "?")
    expect(page.locator("#help")).to_be_visible()
    press(page, "a", "Escape")
    expect(page.locator("#help")).to_be_hidden()
    expect(page.locator("#counts")).to_have_text("0 of 4 reviewed")
    press(page, "e")
    assert {"Enter", "Esc", "Shift", "Alt"} <= set(page.locator("#keys kbd").all_text_contents())


def test_what_documents_and_queries_hold_is_text_and_nothing_else(tmp_path: Path, opened: Opener) -> None:
    page = opened(write_files(tmp_path))
    press(page, "j", "j")
    expect(page.locator("#question")).to_have_text("<b>Script?</b>")
    expect(page.locator("mark.current")).to_have_text("{{7*7}}")
    assert page.evaluate("document.getElementById('document').textContent") == HOSTILE
    assert page.evaluate("window.pwned") is None
    assert page.locator("#document script, #document img, #list b").count() == 0


def test_the_alternatives_of_a_span_are_listed_gone_to_and_kept(tmp_path: Path, opened: Opener) -> None:
    copy = span("ferry.md", FERRY, "22:40", 1) | {"origin": "copy"}
    elsewhere = span("hostile.md", HOSTILE, "{{7*7}}")
    record = {
        "query": "When?",
        "relevant_spans": [span("ferry.md", FERRY, "22:40") | {"alternatives": [copy, elsewhere]}],
    }
    truth = write_files(tmp_path, {"format": "rag-eval/token-level", "version": 1}, record)
    page = opened(truth)
    first, second = page.locator(".span.alternative").all()
    expect(first).to_contain_text(f"or elsewhere, ferry.md · {copy['start']}–{copy['end']} (copy)")
    expect(page.locator("mark.other")).to_have_text("22:40")
    press(page, "l", "l")
    expect(page.locator("mark.current")).to_have_text("{{7*7}}")
    second.click()
    expect(page.locator("mark.current")).to_have_text("{{7*7}}")
    press(page, "h", "h")
    expect(page.locator("mark.current")).to_have_text("22:40")
    press(page, "e", "Shift+ArrowLeft", "Enter")
    said(page, "Saved at")
    (adjusted,) = queries_in(truth)[0]["relevant_spans"]
    assert adjusted["start"] < record["relevant_spans"][0]["start"]
    assert adjusted["alternatives"] == [copy, elsewhere]
    press(page, "a")
    said(page, "Accepted and saved.")
    assert queries_in(truth)[0]["relevant_spans"] == [adjusted]


def test_two_people_see_each_others_decisions(tmp_path: Path, opened: Opener) -> None:
    truth = write_files(tmp_path)
    anna, ben = opened(truth), opened(truth)
    press(anna, "a")
    said(anna, "Accepted and saved.")
    press(ben, "r")
    said(ben, "Rejected and saved.")
    assert [query["query"] for query in queries_in(tmp_path / "truth.rejected.jsonl")] == ["When?"]
    expect(anna.locator("#counts")).to_contain_text("1 rejected")
    press(anna, "u")
    said(anna, "somebody else has changed this question since")
    truth.write_bytes(truth.read_bytes().replace(b"Boats?", b"Ships?"))
    expect(ben.locator("#list")).to_contain_text("Ships?")


def test_passages_are_judged_with_the_keyboard_alone(tmp_path: Path, opened: Opener) -> None:
    lines = records()
    reason = "<script>window.pwned = 3</script>\x1b[31m\u202e"
    judged = [
        span("ferry.md", FERRY, "Boote") | {"grades": {"<b>model</b>": 3}, "reasons": {"<b>model</b>": reason}},
        span("ferry.md", FERRY, "Die letzte") | {"grades": {}},
        span("hostile.md", HOSTILE, "<script>window.pwned = 1</script>") | {"grades": {}},
    ]
    lines[1]["metadata"] = {"judged": [one | {"configurations": 1, "rank": 1} for one in judged]}
    truth = write_files(tmp_path, *lines)
    page = opened(truth)
    expect(page.locator("#counts")).to_have_text("0 of 4 reviewed, 2 to judge")
    press(page, "j")
    expect(page.locator(".span")).to_have_count(4)
    expect(page.locator(".span").first).to_contain_text("<b>model</b>: grade 3 of 3, <script>window.pwned = 3")
    press(page, "y", "x", "y")
    said(page, "It answers: saved.")
    expect(page.locator("mark.current")).to_have_text("<script>window.pwned = 1</script>")
    press(page, "x")
    said(page, "It does not answer: saved. a accepts the question.")
    spans = queries_in(truth)[1]["relevant_spans"]
    assert [(one["text"], one.get("origin")) for one in spans] == [("Boote", None), ("Die letzte", "judged by person")]
    grades = {one["text"]: one["grades"]["person"] for one in queries_in(truth)[1]["metadata"]["judged"]}
    assert grades == {"Boote": 3, "zwei": 0, "Die letzte": 3, "<script>window.pwned = 1</script>": 0}
    press(page, "a", "a", "a", "a")
    said(page, "Every query is reviewed.")
    assert page.evaluate("window.pwned") is None
    assert page.locator("#spans b, #spans script").count() == 0


def test_what_nothing_answers_is_declared_and_what_something_does_is_answered(tmp_path: Path, opened: Opener) -> None:
    truth = write_files(tmp_path)
    page = opened(truth)
    press(page, "x")
    said(page, "it is the last passage: press 0 if nothing answers the question")
    press(page, "0")
    said(page, "Nothing answers it: saved.")
    (judged,) = queries_in(truth)[0]["metadata"].pop("judged")
    assert (judged["text"], judged["grades"]) == ("22:40", {"person": 0})
    assert queries_in(truth)[0] | {"metadata": {}} == {
        "query": "When?",
        "relevant_spans": [],
        "unanswerable": True,
        "metadata": {},
    }
    press(page, "j", "j")
    expect(page.locator("#unanswerable")).to_be_visible()
    press(page, "d")
    page.locator("#document-choice").select_option("ferry.md")
    press(page, "/")
    page.keyboard.type("zwei 👍🏽")
    press(page, "Enter", "Escape", "n", "Enter")
    said(page, "Saved at")
    expect(page.locator("#unanswerable")).to_be_hidden()
    press(page, "a")
    said(page, "Accepted and saved.")
    item = read_token_level(truth)[3]
    assert (item.unanswerable, item.query.metadata["review"]) == (False, "accepted")
    press(page, "f")
    expect(page.locator("#filter")).to_be_focused()


def test_the_list_shows_what_is_asked_for(tmp_path: Path, opened: Opener) -> None:
    page = opened(write_files(tmp_path))
    press(page, "a")
    said(page, "Accepted")
    page.locator("#filter").select_option("accepted")
    expect(page.locator("#list li:visible")).to_have_count(2)  # and the one being looked at
    page.locator("#list button").first.click()
    expect(page.locator("#question")).to_have_text("When?")
    expect(page.locator("#list li:visible")).to_have_count(1)
    press(page, "j")
    said(page, "This is the last query.")


def test_offsets_are_counted_as_python_counts_them(tmp_path: Path, opened: Opener) -> None:
    page = opened(write_files(tmp_path))
    texts = [*(text[:2000] for text in known_texts().values()), FERRY, HOSTILE, "".join(FRAGMENTS) * 3]
    counted = page.evaluate(
        """async (texts) => {
          const { DocumentText } = await import("/static/text.js");
          return texts.map((text) => {
            const document = new DocumentText(text);
            const points = Array.from(text);
            const units = points.map((_, point) => document.toUnits(point)).concat(document.toUnits(points.length));
            const whole = document.blocks.map((block) => text.slice(block.start, block.end)).join("") === text;
            return { units, back: units.map((unit) => document.toPoints(unit)), whole };
          });
        }""",
        texts,
    )
    for text, found in zip(texts, counted, strict=True):
        expected = [0]
        for character in text:
            expected.append(expected[-1] + (2 if ord(character) > 0xFFFF else 1))
        assert found == {"units": expected, "back": list(range(len(text) + 1)), "whole": True}


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_everything_can_be_read_and_reached(tmp_path: Path, opened: Opener, scheme: str, width: int) -> None:
    page = opened(write_files(tmp_path), viewport={"width": width, "height": 844}, color_scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    for button in page.locator("button:visible, select:visible, input:visible").all():
        name = button.evaluate("one => (one.ariaLabel || one.labels?.[0]?.textContent || one.textContent).trim()")
        assert name
    press(page, "e")
    faint = page.evaluate(CONTRAST)
    assert faint == []


CONTRAST = """() => {
  const channel = (value) => (value /= 255) <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const parts = (color) => color.match(/[\\d.]+/g).map(Number);
  const ground = (element) => {
    for (; element; element = element.parentElement) {
      const found = parts(getComputedStyle(element).backgroundColor);
      if (found.length < 4 || found[3] > 0) return found;
    }
    return [255, 255, 255];
  };
  const faint = [];
  for (const element of document.querySelectorAll("body *")) {
    const hasText = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    if (!hasText || !element.checkVisibility() || element.disabled || element.closest(":disabled, option")) continue;
    const [one, other] = [light(parts(getComputedStyle(element).color)), light(ground(element))];
    const ratio = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    if (ratio < 4.5) faint.push(`${element.tagName} ${element.textContent.slice(0, 30)} ${ratio.toFixed(2)}`);
  }
  return faint;
}"""


def test_a_passage_of_a_pdf_is_shown_on_its_page(tmp_path: Path, opened: Opener) -> None:
    lines = ["Ferries leave at noon.", HOSTILE.splitlines()[1], "Children travel free of charge."]
    quoted = {"doc_id": "guide.pdf", "page": 2, "text": lines[2]}
    truth = write_files(tmp_path, {"query": "Who is free?", "relevant_spans": [quoted]}, records()[0])
    (tmp_path / "docs" / "guide.pdf").write_bytes(pdf([["Welcome aboard."], lines]))
    page = opened(truth)
    expect(page.locator(".span .place").first).to_contain_text("guide.pdf · page 2 ·")
    expect(page.locator("mark.current")).to_have_text(lines[2])
    expect(page.locator("#sheet img")).to_have_attribute("alt", "Page 2 of guide.pdf")
    page.locator("#sheet img").evaluate("image => image.decode()")  # the page's policy forbids to wait by a function
    paper, box = (page.locator(one).bounding_box() for one in (".paper", ".paper i.current"))
    assert (box["x"] - paper["x"]) / paper["width"] == pytest.approx(72 / 612, abs=0.01)
    assert (box["y"] + box["height"] / 2 - paper["y"]) / paper["height"] == pytest.approx(100 / 792, abs=0.02)
    press(page, "p")
    expect(page.locator("#sheet")).to_be_hidden()
    press(page, "p", "a")
    expect(page.locator("#question")).to_have_text("When?")
    expect(page.locator("#sheet")).to_be_hidden()
    expect(page.locator("#sheet-button")).to_be_hidden()
    assert page.evaluate("window.pwned") is None
    assert read_token_level(truth)[0].relevant_spans[0].text == lines[2]


def test_a_phone_shows_the_text_or_the_page(tmp_path: Path, opened: Opener) -> None:
    quoted = {"doc_id": "guide.pdf", "page": 1}
    truth = write_files(tmp_path, {"query": "What?", "relevant_spans": [quoted]})
    (tmp_path / "docs" / "guide.pdf").write_bytes(pdf([["Welcome aboard."]]))
    page = opened(truth, viewport={"width": 390, "height": 844})
    expect(page.locator("#document")).to_be_visible()
    page.locator("#sheet-button").click()
    expect(page.locator("#document")).to_be_hidden()
    expect(page.locator("#sheet img")).to_be_visible()
