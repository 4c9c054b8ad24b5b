"""The work that the demo's agent does on a text: measure it, find its outline and keywords, and sum it up."""

from __future__ import annotations

import re
from collections import Counter
from typing import Final

#: The longest line that is shown of anything in a text.
_LONGEST: Final = 120
_HEADINGS: Final = 12
_KEYWORDS: Final = 8
_SENTENCES: Final = 3
_WORDS_PER_MINUTE: Final = 200

_WORD: Final = re.compile(r"[^\W\d_]+(?:['\u2019-][^\W\d_]+)*")
_PARAGRAPH: Final = re.compile(r"\n\s*\n")
_SENTENCE: Final = re.compile(r"(?<=[^\W\d_][.!?])\s+")
_MARKED: Final = re.compile(r"#{1,6}\s+(?P<marked>\S.*)|(?P<numbered>\d+(?:\.\d+)*[.)]\s+\S.*)")
_SHORTEST_WORD: Final = 4
_COMMON_WORDS: Final = """
about above after again against also although always among another anybody anything because been before being
below between both cannot could does doing down during each either else even ever every everybody everything
from further have having here hers herself himself however into itself just later least less like made make
many maybe might more most much must myself neither never nobody none nothing often once only other ours over
perhaps rather said same several shall should since some somebody something soon still such than that their
theirs them themselves then there these they this those though through thus today together under until unless
upon used very want well were what when where whether which while whole whom whose will with within without
would your yours yourself
"""
_PRESSING_WORDS: Final = """
asap breach critical danger deadline emergency failure immediately incident outage overdue urgent warning
"""
_COMMON: Final = frozenset(_COMMON_WORDS.split())
_PRESSING: Final = frozenset(_PRESSING_WORDS.split())


def words_of(text: str) -> list[str]:
    """List the words, in lowercase."""
    return _WORD.findall(text.lower())


def measure(text: str) -> dict[str, int]:
    """Count words and lines, and say how many minutes a reader needs."""
    words = len(words_of(text))
    return {"words": words, "lines": len(text.splitlines()), "minutes": -(-words // _WORDS_PER_MINUTE)}


def title_of(text: str) -> str:
    """Take the first line that is not empty, without the marks of a heading."""
    first = next(line for line in text.splitlines() if line.strip())
    return clipped(first.strip().lstrip("#"))


def outline_of(text: str) -> list[str]:
    """List the headings, marked or numbered; in a text without any, how its paragraphs begin."""
    headings = [found for line in text.splitlines() if (found := _heading(line.strip()))]
    return (headings or [clipped(_SENTENCE.split(each)[0]) for each in paragraphs_of(text)[:_HEADINGS]])[:_HEADINGS]


def keywords_of(text: str) -> dict[str, int]:
    """Count the words that say what the text is about, the most frequent first."""
    counted = Counter(word for word in words_of(text) if len(word) >= _SHORTEST_WORD and word not in _COMMON)
    ranked = sorted(counted.items(), key=lambda item: (-item[1], item[0]))
    return {clipped(word): number for word, number in ranked[:_KEYWORDS]}


def summary_of(text: str, keywords: dict[str, int]) -> list[str]:
    """Pick the sentences in which the keywords are densest, in the order of the text."""
    sentences = [each for paragraph in paragraphs_of(text) for each in _SENTENCE.split(paragraph) if not _heading(each)]
    ranked = sorted(range(len(sentences)), key=lambda place: (-_density(sentences[place], keywords), place))
    return [clipped(sentences[place]) for place in sorted(ranked[:_SENTENCES])]


def pressing_words_of(text: str) -> list[str]:
    """List the words that ask for haste, each once, sorted."""
    return sorted(_PRESSING.intersection(words_of(text)))


def paragraphs_of(text: str) -> list[str]:
    """Split at empty lines, and make one line of each paragraph."""
    return [" ".join(each.split()) for each in _PARAGRAPH.split(text) if each.strip()]


def clipped(line: str) -> str:
    """Make one line of printable text that is not too long."""
    plain = " ".join("".join(letter if letter.isprintable() else " " for letter in line).split())
    return plain if len(plain) <= _LONGEST else f"{plain[: _LONGEST - 1].rstrip()}…"


def _heading(line: str) -> str | None:
    if len(line) > _LONGEST or line.endswith((".", "!", "?", ":", ",", ";")):
        return None
    found = _MARKED.fullmatch(line)
    return clipped(found["marked"] or found["numbered"]) if found else None


def _density(sentence: str, keywords: dict[str, int]) -> float:
    words = words_of(sentence)
    return sum(keywords.get(word, 0) for word in words) / (len(words) + 5)
