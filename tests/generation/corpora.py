"""Small corpora for the generation tests."""

from collections.abc import Mapping

from rag_eval import Corpus, Document, DocumentId

PLACES = ("Storvåg", "Lyngholm", "Brattvik", "Kvitøya")


def harbour_text(place: str) -> str:
    """A document of a dozen sentences about one harbour, each different."""
    facts = (
        f"The harbour office of {place} opens at half past six on working days.",
        f"Fresh water in {place} costs forty kroner for every cubic metre.",
        f"Fishing boats in {place} moor along the inner side of the old pier.",
        f"The crane of {place} lifts twelve tonnes at most in calm weather.",
        f"Rubbish from ships is collected in {place} every second Thursday.",
        f"The pilot of {place} boards two miles west of the outer beacon.",
        f"Winter storage in {place} has to be ordered before September ends.",
        f"Visitors of {place} pay their berth at the machine beside the kiosk.",
        f"Diesel is sold in {place} from a barge that carries a yellow lamp.",
        f"The lifeboat of {place} is manned by nine volunteers and a coxswain.",
        f"Divers may enter the basin of {place} after a call on channel twelve.",
        f"A tide table of {place} hangs in the window of the sailmaker.",
    )
    return f"# {place}\n\n" + "\n\n".join(facts) + "\n"


def harbours(*places: str) -> Corpus:
    """A document for each place."""
    return corpus_of({f"{place.lower()}.md": harbour_text(place) for place in places or PLACES})


def corpus_of(texts: Mapping[str, str]) -> Corpus:
    """A corpus of these texts by document id."""
    return Corpus([Document(DocumentId(name), text) for name, text in texts.items()])
