import pytest

from rag_eval.ground_truth.drift import Carrier

OLD = (
    "Title\n\nThe ferry leaves at 22:40 on weekdays. Tickets cost 5 euro.\n\n"
    "Dogs travel free of charge. Cats do not.\n\nEnd of file.\n"
)


def carried(old: str, new: str, text: str) -> tuple[str, str]:
    """What becomes of the first copy of a text: the status, and the new text or the reason."""
    start = old.index(text)
    found = Carrier(old, new).carry(start, start + len(text))
    return found.status, new[slice(*found.place)] if found.place else str(found.reason)


@pytest.mark.parametrize(
    ("new", "text", "status", "found"),
    [
        (OLD, "Tickets cost 5 euro.", "kept", "Tickets cost 5 euro."),
        (OLD + "More.", "End of file.", "kept", "End of file."),
        ("\ufeff" + OLD, "Tickets cost 5 euro.", "moved", "Tickets cost 5 euro."),
        (OLD.replace("22:40", "23:15"), "leaves at 22:40 on", "altered", "leaves at 23:15 on"),
        (OLD.replace("The ferry leaves", "A boat departs"), "The ferry leaves at 22:40 on weekdays.", "altered", ""),
        (OLD.replace("The ferry leaves", "A boat departs"), "22:40", "moved", "22:40"),
        (OLD.replace("22:40", "9 am"), "22:40", "lost", "rewritten"),
        (OLD.replace("Tickets cost 5 euro.", ""), "Tickets cost 5 euro.", "lost", "deleted"),
        (OLD.replace("Tickets cost 5 euro.", ""), "Tickets", "lost", "deleted"),
        (OLD.replace(" Tickets cost 5 euro.", ""), "on weekdays. Tickets", "altered", "on weekdays."),
        (OLD.replace("\n", "\r\n"), "Cats do not.\n\nEnd", "altered", "Cats do not.\r\n\r\nEnd"),
        ("", "Tickets", "lost", "deleted"),
        ("Something else altogether was written here.", "Tickets cost 5 euro.", "lost", "rewritten"),
    ],
)
def test_a_span_goes_where_its_text_went(new: str, text: str, status: str, found: str) -> None:
    if found == "":
        found = "A boat departs at 22:40 on weekdays."
    assert carried(OLD, new, text) == (status, found)


def test_text_that_was_moved_is_followed_and_a_new_copy_of_short_text_is_not() -> None:
    paragraph = "Dogs travel free of charge. Cats do not.\n\n"
    assert carried(OLD, paragraph + OLD.replace(paragraph, ""), "free of charge.") == ("moved", "free of charge.")
    gone = OLD.replace("Tickets cost 5 euro.", "")
    assert carried(OLD, gone + "Coffee: 5 euro.", "5 euro.") == ("lost", "deleted")


def test_every_one_of_several_moved_texts_is_followed_and_not_words_of_it_elsewhere() -> None:
    wind, maps, lost = "Wind over 20 knots stops all traffic.", "Maps are in the hall.", "Lost items go to the office."
    sold, noon = "Tickets are sold on board only.", "The ferry leaves at noon from Storvåg."
    old = " ".join([wind, maps, lost, sold, noon])
    new = " ".join([lost, maps, "Wind over 20 knots stops", wind.removeprefix("Wind "), noon, sold])
    for text in (" over 20 knots st", " sold on board"):
        start, moved = old.index(text), new.rindex(text)
        assert Carrier(old, new).carry(start, start + len(text)).place == (moved, moved + len(text))


def test_what_stands_once_among_rewritten_text_is_followed_unless_it_is_short() -> None:
    before, kept, after = "Leaves deck coffee cabin. ", "Ferry deck water. ", "Ferry coffee at. Leaves ferry at bread. "
    head = "At water captain. Bread coffee cabin noon deck harbour. "
    old, new = head + "Rye ferry harbour bread. " + kept, head + kept + after
    assert carried(old, new, "Ferry deck water.") == ("moved", "Ferry deck water.")
    start = old.rindex("water.")
    # Six characters may as well be those of another sentence.
    assert Carrier(old, new).carry(start, start + 6).reason == "ambiguous"
    swapped = "Ferry cabin. Water coffee rye deck cabin. Coffee bread deck the. "
    assert carried("Coffee bread deck the. " + before + "Ferry cabin. ", swapped, "Ferry cabin.") == (
        "moved",
        "Ferry cabin.",
    )


def test_the_diff_tells_copies_apart() -> None:
    rows = "".join(f"Row {number}: the price is due at once.\n" for number in range(9))
    start = rows.index("the price", rows.index("Row 4"))
    without = rows.replace("Row 2: the price is due at once.\n", "")
    assert Carrier(rows, without).carry(start, start + 26).place == (start - 33, start - 7)
    gone = rows.replace("Row 4: the price is due at once.\n", "")
    assert Carrier(rows, gone).carry(start, start + 26).reason == "deleted", "the other rows are not this one"


def test_where_a_line_was_deleted_its_span_does_not_go_over_to_the_next_line() -> None:
    old = "- Price: 5 euro (adult)\n- Price: 5 euro (child)\n"
    new = "- Price: 5 euro (child)\n"
    assert Carrier(old, new).carry(2, 15).reason == "deleted"
    assert Carrier(old, new).carry(26, 39).place == (2, 15)


def test_copies_that_cannot_be_told_apart_are_lost() -> None:
    old = "row one\n" * 2000
    new = "row one\n" * 900 + "x\n" + "row one\n" * 500 + "y\n" + "row one\n" * 300
    found = Carrier(old, new, exact_cells=0).carry(8000, 8007)
    assert (found.status, found.reason) == ("lost", "ambiguous")


def test_what_a_span_gained_inside_belongs_to_it_and_what_stands_beside_does_not() -> None:
    inside = OLD.replace("on weekdays", "at the pier on weekdays")
    assert carried(OLD, inside, "leaves at 22:40 on weekdays.")[1] == "leaves at 22:40 at the pier on weekdays."
    beside = OLD.replace("Tickets cost 5 euro.", "Note this. Tickets cost 6 euro. Really.")
    assert carried(OLD, beside, "Tickets cost 5 euro.") == ("altered", "Tickets cost 6 euro.")


@pytest.mark.parametrize(
    ("old", "new", "span", "place"),
    [
        ("b. \n\n\n\n", "b. \n\n\n", (5, 7), (4, 6)),
        ("b. x", "b. b x", (2, 4), (4, 6)),
        ("lo free of charge. la la ", "xe of charge. la la la ", (18, 25), (13, 20)),
        # A short span that ends where a short shared block does is still shared.
        ("aab. aab. endend", "aab. aala b. ende la ", (9, 14), (12, 17)),
    ],
)
def test_a_change_that_may_be_before_or_after_a_span_does_not_cut_it(
    old: str, new: str, span: tuple[int, int], place: tuple[int, int]
) -> None:
    assert Carrier(old, new).carry(*span).place == place


@pytest.mark.parametrize(
    ("new", "text", "found"),
    [
        (OLD.replace("Dogs travel free", "Dogs untravel for free"), "travel free of", "untravel for free of"),
        (
            OLD.replace("travel free of charge. C", "travel for freely of charges. C"),
            "free of charge",
            "freely of charges",
        ),
        (OLD.replace(" travel free", "travel for free"), "travel free of", "travel for free of"),
        (OLD.replace("at 22:40 on weekdays", "at 22:40, onweekdays"), "22:40 on", "22:40, on"),
        (OLD.replace("Tickets cost", "Tickets, which cost"), "ickets cos", "ickets, which cos"),
    ],
)
def test_what_began_and_ended_with_whole_words_goes_on_doing_so(new: str, text: str, found: str) -> None:
    assert carried(OLD, new, text)[1] == found


@pytest.mark.parametrize(("kept", "status"), [(6, "altered"), (5, "altered"), (4, "lost")])
def test_a_span_of_which_half_is_left_is_altered_and_with_less_it_is_lost(kept: int, status: str) -> None:
    before, after = "Before the span. ", " After the span."
    new = before + "abcdefghij"[:kept] + "0123456789"[kept:] + after
    assert carried(before + "abcdefghij" + after, new, "abcdefghij")[0] == status
