"""HTML from Python: text is escaped, and only what this module made is taken for markup."""

import html

# Characters that turn the direction of what follows: seen as an escape, they turn nothing of the sentence around them.
_TURNS = {code: f"\\u{code:04x}" for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A))}


class Html(str):
    """Markup that is safe as it stands."""

    __slots__ = ()


def element(tag: str, *children: str | None, **attributes: str | int | float | bool | None) -> Html:
    """An element; children that are no ``Html`` are escaped, and None is left out.

    An attribute's trailing ``_`` is dropped and other ``_`` become ``-``; True gives a bare attribute, None and False
    none.
    """
    written = "".join(_attribute(name, value) for name, value in attributes.items())
    inner = "".join(text(child) for child in children if child is not None)
    return Html(f"<{tag}{written}>{inner}</{tag}>")


def text(content: str) -> Html:
    """Text as markup, with what would turn its direction written as an escape; markup stays as it is."""
    return content if isinstance(content, Html) else Html(html.escape(content.translate(_TURNS)))


def together(*parts: str | None) -> Html:
    """Parts one after the other."""
    return Html("".join(text(part) for part in parts if part is not None))


def scrolling(table: Html, label: str) -> Html:
    """A table in a box that scrolls sideways, by keyboard too."""
    return element("div", table, class_="scroll", tabindex=0, role="group", aria_label=label)


def _attribute(name: str, value: str | int | float | bool | None) -> str:
    if value is None or value is False:
        return ""
    key = name.removesuffix("_").replace("_", "-")
    return f" {key}" if value is True else f' {key}="{html.escape(str(value))}"'
