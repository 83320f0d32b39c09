"""Commands that repeat each other, or nearly so, in one data set or in several.

The sets of trigrams of near duplicates have a Jaccard similarity of at least 0.9. Such pairs share
one of their rarest trigrams: Bayardo, Ma and Srikant, Scaling up all pairs similarity search, WWW
2007. What repeats another command is compared with no more.
"""

import re
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from math import ceil

from aegish_dist.core.sample import Sample
from aegish_dist.datasets.draft import Draft, Problem, Severity

SIMILARITY = 0.9
MAX_SHARED = 200  # commands found by one trigram; bounds the time of sets that are made to be slow
MAX_COMPARED = 50  # of the commands found, those that share most of the rarest trigrams

_QUOTED_WORD = re.compile(r"""(['"])([\w@%+=:,./-]+)\1""")  # nothing that means anything to a shell
_QUOTED_TEXT = re.compile(r"""(['"])([\w@%+=:,./ -]+)\1""")
_HEX = re.compile(r"0[xX][0-9a-fA-F]+|\\x[0-9a-fA-F]{2}")
_FLAG = r"-[A-Za-z]{1,3}"  # longer ones are words, such as those of find, whose order counts
_FLAGS = re.compile(rf"(?<!\S){_FLAG}(?: {_FLAG})*(?!\S)")


def normal_form(command: str) -> str:
    """Return what commands share that differ in their writing alone.

    White space is one blank or newline, quotes of plain text are single or, around a word, gone;
    letters of adjoining flags are sorted (`-l -a`, `-al`), hexadecimal digits are small, and there
    is no `;` at the end.
    """
    lines = [" ".join(line.split()) for line in command.split("\n")]
    text = "\n".join(line for line in lines if line)
    text = text.rstrip("; \n")
    text = _QUOTED_WORD.sub(r"\2", text)
    text = _QUOTED_TEXT.sub(r"'\2'", text)
    text = _HEX.sub(lambda found: found[0].lower(), text)
    return _FLAGS.sub(_sorted_flags, text)


def _sorted_flags(flags: re.Match[str]) -> str:
    letters = flags[0].replace(" -", "")[1:]
    return "-" + "".join(sorted(letters))


def alike(drafts: Sequence[Draft]) -> Iterator[tuple[int, Problem]]:
    """Yield the number of a data set and a problem for each command that repeats an earlier one.

    Copies with different labels are errors, all else are warnings. That a data set holds the same
    command twice is left to `problems`.
    """
    samples: list[Sample] = []
    places: list[tuple[int, int]] = []
    for number, draft in enumerate(drafts):
        samples += draft.samples
        places += [(number, line) for line in draft.lines]

    for one, other, how in _pairs(samples):
        number, line = places[one]
        earlier, where = places[other]
        message = f"{how} line {where}"
        if number != earlier:
            message = f"{how} {drafts[earlier].file}, line {where}"
        elif how == _SAME:
            continue
        severity = Severity.WARNING
        label = samples[other].target
        if samples[one].target is not label:
            message += f", which is labelled {label}"
            if how != _NEAR:
                severity = Severity.ERROR
        yield number, Problem(line, "command", message, severity)


_SAME = "the same command as in"
_NORMAL = "differs in writing from"
_NEAR = "is nearly that of"


def _pairs(samples: Iterable[Sample]) -> Iterator[tuple[int, int, str]]:
    """Yield the number of a sample, that of an earlier one, and how they are alike."""
    commands: dict[str, int] = {}
    forms: dict[str, int] = {}
    for number, sample in enumerate(samples):
        first = commands.setdefault(sample.command, number)
        if first != number:
            yield number, first, _SAME
            continue
        first = forms.setdefault(normal_form(sample.command), number)
        if first != number:
            yield number, first, _NORMAL

    for one, other in _near(list(forms)):
        first, number = sorted((forms[one], forms[other]))
        yield number, first, _NEAR


def _near(forms: list[str]) -> Iterator[tuple[str, str]]:
    # By size: each form is compared with earlier ones, which are no larger.
    forms.sort(key=lambda form: (len(_trigrams(form)), form))
    counts: Counter[str] = Counter()
    for form in forms:
        counts.update(_trigrams(form))
    rarest_first = reversed(counts.most_common())
    ranks = {gram: rank for rank, (gram, _) in enumerate(rarest_first)}
    sharing: dict[int, list[int]] = defaultdict(list)
    known: list[tuple[str, array[int]]] = []
    for form in forms:
        grams = array("I", sorted(ranks[gram] for gram in _trigrams(form)))
        mine = set(grams)
        size = len(grams)
        # Two forms so alike share one of these: all others together are too few.
        rarest = grams[: size - ceil(SIMILARITY * size) + 1]
        places: Counter[int] = Counter()
        for gram in rarest:
            places.update(sharing[gram])
        for place, _ in places.most_common(MAX_COMPARED):
            other, theirs = known[place]
            shared = len(mine.intersection(theirs))
            united = size + len(theirs) - shared
            if shared >= SIMILARITY * united:
                yield form, other
                break
        else:
            for gram in rarest:
                # A trigram of many commands would find too many to compare.
                if len(sharing[gram]) < MAX_SHARED:
                    sharing[gram].append(len(known))
            known.append((form, grams))


def _trigrams(text: str) -> set[str]:
    return {text[start : start + 3] for start in range(max(1, len(text) - 2))}
