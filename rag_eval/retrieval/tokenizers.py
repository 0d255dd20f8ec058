"""Tokenizers of lexical search: the words of a text, as they are, stemmed for a language, or by a user's function."""

import re
import threading
import unicodedata
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Annotated

from pydantic import Field, StrictBool

from rag_eval.distribution import install_command
from rag_eval.errors import ConfigurationError, preview
from rag_eval.formatting import choices, suggestion
from rag_eval.parts import Shown, part
from rag_eval.parts.objects import ForeignFunction
from rag_eval.parts.settings import Name

# Scripts that are written without spaces are taken in overlapping pairs of characters, as search engines do.
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_UNSPACED_BEYOND = "\U00020000-\U0003ffff"
_WORD = re.compile(rf"[{_UNSPACED}{_UNSPACED_BEYOND}]+|[^\W{_UNSPACED}{_UNSPACED_BEYOND}]+")
_UNSPACED_START = re.compile(rf"[{_UNSPACED}{_UNSPACED_BEYOND}]")
_ASCII_WORD = re.compile(r"\w+", re.ASCII)


def words(text: str) -> list[str]:
    """The words of a text, case and Unicode form evened out; Chinese, Japanese, Thai and the like as pairs."""
    if text.isascii():  # most texts, for which the rules below come to this
        return _ASCII_WORD.findall(text.lower())
    evened = unicodedata.normalize("NFKC", text).casefold()
    found: list[str] = _WORD.findall(evened)
    if not _UNSPACED_START.search(evened):
        return found
    pairs: list[str] = []
    for word in found:
        if len(word) > 2 and _UNSPACED_START.match(word):
            pairs.extend(word[place : place + 2] for place in range(len(word) - 1))
        else:
            pairs.append(word)
    return pairs


RUN = 3
"""So many words in a row that are in another text too are copied from it."""


def leakage(question: str, *excerpts: str) -> float:
    """The share of the question's words that stand in a run of three or more which an excerpt holds too; 0 to 1.

    0 for a question without words. Scripts without spaces count pairs of characters as words.
    """
    asked, runs = words(question), set()
    for told in map(words, excerpts):
        runs |= {tuple(told[place : place + RUN]) for place in range(len(told) - RUN + 1)}
    starts = [place for place in range(len(asked) - RUN + 1) if tuple(asked[place : place + RUN]) in runs]
    return len({place + step for place in starts for step in range(RUN)}) / len(asked) if asked else 0.0


LEAKAGE_KINDS = {"none": 0.0, "up to 25 %": 0.25, "25 to 50 %": 0.5, "more than 50 %": 1.0}
"""The kinds of questions by the share of their words that is copied, with the largest share of each."""


def leakage_kind(share: float) -> str:
    """The kind of a question of whose words such a share is copied."""
    return next(kind for kind, most in LEAKAGE_KINDS.items() if share <= most)


@part
class WordTokenizer:
    """Runs of letters and digits, case and Unicode form evened out; Chinese, Japanese, Thai and the like as pairs."""

    def words(self, text: str) -> list[str]:
        """Return the words of a text, in their order."""
        return words(text)


# Articles, pronouns, prepositions, conjunctions and auxiliaries, as ``words`` writes them.
STOP_WORDS = {
    "danish": "af at blev bliver da de dem den denne der deres det dette dig din disse du efter eller en er et for fra "
    "få ham han hans har havde hende hendes her hun hvad hvem hver hvis hvor i ikke ind jeg kan kun kunne man med "
    "meget men mig min mit mod ned nu når og også om op os over på sig sin skal skulle som så til ud under ved vi",
    "dutch": "aan al alle als bij daar dan dat de der deze die dit doen door dus een en er ge geen haar had heb hebben "
    "heeft hem het hier hij hoe hun ik in is ja je kan kon kunnen maar me men met mij mijn moet na naar niet nog nu of "
    "om omdat onder ons ook op over te tegen toen tot u uit uw van veel voor want waren was wat we wel werd wezen wie "
    "wij wil worden wordt zal ze zelf zich zij zijn zo zonder zou",
    "english": "a about after all am an and any are as at be because been before being below between both but by can "
    "could did do does doing down during each few for from further had has have having he her here hers him his how i "
    "if in into is it its itself just me more most my no nor not of off on once only or other our ours out over own s "
    "same she should so some such t than that the their theirs them then there these they this those through to too "
    "under until up very was we were what when where which while who whom why will with would you your yours",
    "finnish": "ei ehkä eli emme en että he heidän hän hänen ja joka joko jos jotka kanssa kuin kun me mikä minä mitä "
    "mutta myös ne niin nyt ole olen oli olivat on ovat saa se sekä sen siitä sinä sitä tai te tämä tämän voi vain",
    "french": "à ai as au aux avec avait ce ces cet cette c d dans de des du elle elles en est et été être eu eux fait "
    "il ils j je l la là le les leur leurs lui m ma mais me mes même moi mon n ne nos notre nous on ont ou où par pas "
    "pour plus qu que qui s sa sans se ses si son sont sur t ta te tes toi ton tu un une vos votre vous y était",
    "german": "aber alle als also am an auch auf aus bei bin bis bist da damit das dass dein dem den der des die dies "
    "diese diesem diesen dieser dieses doch dort du durch ein eine einem einen einer eines er es euch euer für gegen "
    "hat hatte hatten hier hinter ich ihr ihre ihrem ihren ihrer im in ist ja jede jeder kann kein keine können man "
    "mein mit nach nicht noch nun nur ob oder ohne sehr sein seine sich sie sind so solche soll über um und uns unter "
    "vom von vor war waren was weil wenn wer werden wie wieder will wir wird wo zu zum zur zwar zwischen",
    "italian": "a ad agli ai al alla alle allo anche avere c che chi ci come con cui da dagli dai dal dalla dalle dei "
    "degli del della delle dello di dove e ed era erano essere fra gli ha hanno ho i il in io l la le lei li lo loro "
    "lui ma mi mia mio ne negli nei nel nella nelle noi non nostro o per perché più quale quando quanto quella quello "
    "questa questo se si sia sono su sua sul sulla suo ti tra tu tua tuo un una uno vi voi",
    "norwegian": "alle at av bare ble blir da de deg dem den denne der deres det dette din disse du eller en enn er et "
    "etter for fra få ha hadde han hans har hun hva hvem hver hvis hvor hvordan i ikke inn jeg kan kunne man med meg "
    "men min mot ned noe noen nå når og også om opp oss over på seg si sin skal skulle slik som så til ut var ved vi "
    "vil ville være vært å",
    "portuguese": "a ao aos as até com como da das de dela dele do dos e é ela elas ele eles em entre era essa esse "
    "esta está este eu foi foram há isso já lhe mais mas me mesmo meu minha muito na nas nem no nos nós não o os ou "
    "para pela pelas pelo pelos por qual quando que quem se sem ser seu seus são só sua suas também te tem um uma você",
    "russian": "а без бы был была были было быть в вам вас во вот все вы где да для до его ее если есть еще же за и из "
    "или им их к как когда кто ли мы на над не него нет но о об он она они оно от по под при с со так там то того тоже "
    "только у уже что чтобы это этого этот я",
    "spanish": "a al algo ante como con cual cuando de del desde donde durante e el él ella ellas ellos en entre era "
    "es esa ese eso esta está este esto estos fue ha han hasta hay la las le les lo los más me mi mis mucho muy nada "
    "ni no nos o para pero por porque que qué quien se ser si sin sobre son su sus también te tiene tu tus un una uno "
    "unos y ya yo",
    "swedish": "alla att av blev bli de dem den denna deras dess det detta dig din du då efter ej eller en er ett från "
    "för ha hade han hans har henne hennes hon honom hur här i icke in inte jag kan kunde man med mellan men mig min "
    "mot mycket ni nu när någon något och om oss på samma sedan sig sin skulle som så till under upp ut utan vad var "
    "vara varför varit vem vi vid vilken än är åt över",
}
"""The words that carry no topic, by language."""


# A stemmer works in place, and configurations that are evaluated side by side share a tokenizer.
_stemming = threading.Lock()


@part
class StemmedTokenizer:
    """The stems of the words by a language's Snowball stemmer, without its stop words (extra ``stemming``).

    Raises ``ConfigurationError`` on a language without a stemmer, or without a list of stop words where these are to
    be left out.
    """

    extra = ("stemming", "snowballstemmer")
    packages = ("snowballstemmer",)

    language: Annotated[Name, Shown, Field(description="The language's English name, such as german.")] = "english"
    stop_words: Annotated[StrictBool, Field(description="Whether stop words are left out.")] = True

    def __post_init__(self) -> None:
        if self.stop_words and self.language not in STOP_WORDS:
            told = suggestion(self.language, STOP_WORDS)
            raise ConfigurationError(
                f"there is no list of stop words for {preview(self.language)}{told}: {choices(STOP_WORDS)}; "
                "or set stop_words to false"
            )
        self._stems: dict[str, str] = dict.fromkeys(STOP_WORDS[self.language].split(), "") if self.stop_words else {}

    def words(self, text: str) -> list[str]:
        """Return the stems of a text's words, in their order; raises ``ConfigurationError`` without the extra."""
        stems, found = self._stems, words(text)
        with _stemming:
            stems |= {word: self._stem(word) for word in set(found) - stems.keys()}
        return [stem for word in found if (stem := stems[word])]

    @cached_property
    def _stem(self) -> Callable[[str], str]:
        try:
            import snowballstemmer
        except ImportError:
            raise ConfigurationError(f"stemmed words need snowballstemmer: {install_command('stemming')}") from None
        known = snowballstemmer.algorithms()
        if self.language not in known:
            told = suggestion(self.language, known)
            raise ConfigurationError(f"there is no stemmer for {preview(self.language)}{told}: {choices(known)}")
        stem: Callable[[str], str] = snowballstemmer.stemmer(self.language).stemWord
        return stem


class ForeignTokenizer(ForeignFunction):
    """A function that gives the words of a text, or an object with ``words`` or ``tokenize``.

    Raises ``ConfigurationError`` when the object cannot be asked.
    """

    kind = "tokenizer"
    methods = ("words", "tokenize")
    wanted = "a function of a text"

    def words(self, text: str) -> list[str]:
        """Return the words of a text; raises ``ConfigurationError`` on anything but a list of texts."""
        given = self.ask(self._call, text)
        found = list(given) if isinstance(given, Iterable) and not isinstance(given, str | bytes) else None
        if found is None or not all(isinstance(word, str) for word in found):
            raise ConfigurationError(f"the tokenizer {self.label} gave {preview(repr(given))}: give a list of words")
        return [word for word in found if word]
