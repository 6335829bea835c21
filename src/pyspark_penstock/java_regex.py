"""Translates Java's regular expressions to Python's, for names of topics.

``subscribePattern`` is Java's in Spark's Kafka connector. A topic's name has only ASCII letters, digits, ``.``, ``_``
and ``-``, so every character class is a subset of these 65 characters: it is computed here and written as a plain list
for Python. A pattern that cannot be translated exactly is refused.
"""

from __future__ import annotations

import re
import string

from pyspark_penstock.errors import WrongOption

Characters = frozenset[str]

_UPPER = frozenset(string.ascii_uppercase)
_LOWER = frozenset(string.ascii_lowercase)
_LETTERS = _UPPER | _LOWER
_DIGITS = frozenset(string.digits)
_PUNCTUATION = frozenset("._-")
LEGAL = _LETTERS | _DIGITS | _PUNCTUATION
"""The characters of topic names."""
_NONE: Characters = frozenset()

_PROPERTIES: dict[str, Characters] = {
    **dict.fromkeys(("Lower", "Ll", "Lowercase", "javaLowerCase"), _LOWER),
    **dict.fromkeys(("Upper", "Lu", "Uppercase", "javaUpperCase"), _UPPER),
    **dict.fromkeys(("Alpha", "L", "LC", "Alphabetic", "Letter", "Latin", "javaLetter", "javaAlphabetic"), _LETTERS),
    **dict.fromkeys(("Digit", "N", "Nd", "javaDigit"), _DIGITS),
    **dict.fromkeys(("Alnum", "javaLetterOrDigit"), _LETTERS | _DIGITS),
    **dict.fromkeys(("Punct", "P", "Punctuation"), _PUNCTUATION),
    **dict.fromkeys(("XDigit", "Hex_Digit"), frozenset(string.hexdigits)),
    **dict.fromkeys(("ASCII", "Graph", "Print", "BasicLatin", "Basic_Latin"), LEGAL),
    **dict.fromkeys(("Pc",), frozenset("_")),
    **dict.fromkeys(("Pd",), frozenset("-")),
    **dict.fromkeys(("Po",), frozenset(".")),
    **dict.fromkeys(("Space", "Blank", "Cntrl", "White_Space", "Control", "Z", "C", "S", "M"), _NONE),
}
_CLASSES: dict[str, Characters] = {
    "d": _DIGITS,
    "w": _LETTERS | _DIGITS | frozenset("_"),
    "s": _NONE,
    "h": _NONE,
    "v": _NONE,
}
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "a": "\a", "e": "\x1b"}
_ASSERTIONS = {"b": r"\b", "B": r"\B", "A": r"\A", "Z": r"\Z", "z": r"\Z"}
_REPETITION = re.compile(r"\{\d+(,\d*)?\}")
_FLAGS = re.compile(r"\(\?([a-zA-Z]*)(-[a-zA-Z]+)?(:|\))")
_NAMED = re.compile(r"\(\?<([a-zA-Z][a-zA-Z0-9]*)>")
_WITHOUT_EFFECT = "dmsuU"
"""Flags for line ends and letters beyond ASCII, which topic names do not have."""


def translated(pattern: str) -> str:
    """The pattern for Python's ``re.fullmatch``; WrongOption if it is invalid in Java or has no equivalent in
    Python."""
    found = _Translation(pattern).done()
    try:
        re.compile(found)
    except (re.error, OverflowError, RecursionError) as error:
        raise WrongOption(f"Option 'subscribePattern' is not a regular expression: {error}: {pattern!r}") from None
    return found


class _Translation:
    """The translation of one pattern, from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._any_case = [False]
        """Whether each open group ignores case, the innermost last."""

    def done(self) -> str:
        out: list[str] = []
        while self._at < len(self._text):
            out.append(self._next())
        return "".join(out)

    def _next(self) -> str:
        match self._text[self._at]:
            case "\\":
                return self._escape()
            case "[":
                return self._listed(self._class())
            case "(":
                return self._group()
            case ")":
                if len(self._any_case) > 1:
                    self._any_case.pop()
            case "{":
                repeated = _REPETITION.match(self._text, self._at)
                if repeated is None:
                    raise self._refused("a { that does not begin a repetition such as {2,3}")
                self._at = repeated.end()
                return repeated[0]
            case _:
                pass
        self._at += 1
        return self._text[self._at - 1]

    # Groups

    def _group(self) -> str:
        self._any_case.append(self._any_case[-1])
        for plain in ("(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>"):
            if self._text.startswith(plain, self._at):
                self._at += len(plain)
                return plain
        if named := _NAMED.match(self._text, self._at):
            self._at = named.end()
            return f"(?P<{named[1]}>"
        if not self._text.startswith("(?", self._at):
            self._at += 1
            return "("
        return self._flagged()

    def _flagged(self) -> str:
        flags = _FLAGS.match(self._text, self._at)
        if flags is None:
            raise self._refused(f"{self._text[self._at : self._at + 4]!r}, which is not a group in Java")
        if flags[2] or set(flags[1]) - {"i", *_WITHOUT_EFFECT}:
            raise self._refused(f"the flags {flags[0]!r}: of flags only i is translated")
        any_case = "i" in flags[1]
        at, self._at = self._at, flags.end()
        if flags[3] == ":":
            self._any_case[-1] |= any_case
            return "(?i:" if any_case else "(?:"
        if at:
            raise self._refused(f"{flags[0]!r} after its beginning: write it first, or around what it is for")
        self._any_case.pop()
        self._any_case[-1] = any_case
        return "(?i)" if any_case else ""

    # Escapes

    def _escape(self) -> str:
        following = self._text[self._at + 1 : self._at + 2]
        if following in _ASSERTIONS and following:
            if self._text.startswith("\\b{", self._at):
                raise self._refused(r"\b{...}")
            self._at += 2
            return _ASSERTIONS[following]
        if following.isdigit() and following != "0":
            self._at += 2
            return f"\\{following}"
        if reference := re.compile(r"\\k<([a-zA-Z][a-zA-Z0-9]*)>").match(self._text, self._at):
            self._at = reference.end()
            return f"(?P={reference[1]})"
        if following == "Q":
            return re.escape(self._quoted())
        found = self._characters()
        return re.escape(found) if isinstance(found, str) else self._listed(found)

    def _quoted(self) -> str:
        """The text between \\Q and \\E, or the end."""
        end = self._text.find("\\E", self._at)
        quoted = self._text[self._at + 2 : end if end >= 0 else None]
        self._at = end + 2 if end >= 0 else len(self._text)
        return quoted

    def _characters(self) -> str | Characters:
        """An escape that is one character or a class of them."""
        kind = self._text[self._at + 1 : self._at + 2]
        if kind in ("p", "P"):
            return self._property()
        if kind.lower() in _CLASSES and kind:
            self._at += 2
            inside = _CLASSES[kind.lower()]
            return inside if kind.islower() else LEGAL - inside
        if kind in _CONTROLS and kind:
            self._at += 2
            return _CONTROLS[kind]
        for form in (r"\\x([0-9a-fA-F]{2})", r"\\x\{([0-9a-fA-F]{1,6})\}", r"\\u([0-9a-fA-F]{4})"):
            if number := re.compile(form).match(self._text, self._at):
                code = int(number[1], 16)
                if code > 0x10FFFF:
                    break
                self._at = number.end()
                return chr(code)
        if not kind or kind.isalnum():
            raise self._refused(f"\\{kind}" if kind else "a \\ at its end")
        self._at += 2
        return kind

    def _property(self) -> Characters:
        named = re.compile(r"\\[pP](?:\{(\^?)([^}]*)\}|([A-Z]))").match(self._text, self._at)
        if named is None:
            raise self._refused(r"a \p without a property such as {Alpha}")
        name = named[3] or named[2].rpartition("=")[2].removeprefix("Is").removeprefix("In")
        if name not in _PROPERTIES or named[1]:
            raise self._refused(f"{named[0]}, an unknown property")
        self._at = named.end()
        inside = self._cased(_PROPERTIES[name])
        return inside if named[0][1] == "p" else LEGAL - inside

    # Classes

    def _class(self) -> Characters:
        """A class in brackets: unions, ranges, negations, intersections and classes within."""
        begin = self._at
        self._at += 1
        negated = self._text.startswith("^", self._at)
        self._at += negated
        whole: Characters | None = None
        part: Characters = _NONE
        empty = True
        while not self._text.startswith("]", self._at) or empty:
            if self._at >= len(self._text):
                raise self._refused(f"a [ without its ]: {self._text[begin:]!r}")
            if self._text.startswith("&&", self._at):
                if empty or self._text.startswith(("]", "&&"), self._at + 2):
                    raise self._refused("an && without a class on either side")
                self._at += 2
                whole = part if whole is None else whole & part
                part = _NONE
                continue
            part |= self._member()
            empty = False
        self._at += 1
        whole = part if whole is None else whole & part
        return LEGAL - whole if negated else whole

    def _member(self) -> Characters:
        if self._text.startswith("[", self._at):
            return self._class()
        if self._text.startswith("\\Q", self._at):
            return self._cased(frozenset(self._quoted()))
        first = self._single()
        if not isinstance(first, str):
            return first
        following = self._text[self._at : self._at + 2]
        if not following.startswith("-") or following in ("-", "-]", "-["):
            return self._cased(frozenset(first))
        self._at += 1
        last = self._single()
        if not isinstance(last, str) or last < first:
            raise self._refused(f"an invalid range from {first!r}")
        return self._cased(frozenset(each for each in LEGAL if first <= each <= last))

    def _single(self) -> str | Characters:
        if self._text.startswith("\\", self._at):
            return self._characters()
        self._at += 1
        return self._text[self._at - 1]

    def _cased(self, found: Characters) -> Characters:
        if not self._any_case[-1]:
            return found & LEGAL
        return frozenset(each for each in LEGAL if {each.lower(), each.upper()} & found)

    def _listed(self, found: Characters) -> str:
        return f"[{re.escape(''.join(sorted(found)))}]" if found else r"[^\s\S]"

    def _refused(self, what: str) -> WrongOption:
        return WrongOption(
            f"Option 'subscribePattern' has {what} at character {self._at}, which is not supported: {self._text!r}"
        )
