"""How people write numbers, units and choices.

Regular expressions that Python and JavaScript read in the same way, for text in small
letters. `flopkit.book.lessons.typed` and book/book_ext/exercises.js read with them.
"""

from __future__ import annotations

from typing import Any

__all__ = ["READING"]

_BIG = {prefix: 1000.0**power for power, prefix in enumerate(["", *"kmgtpezy"])}
_BIG |= {f"{prefix}i": 1024.0**power for power, prefix in enumerate("kmgt", 1)}
_BIG |= {f"{prefix}bi": 1024.0**power for power, prefix in enumerate(("ki", "me", "gi", "te"), 1)}
_BIG |= {word: _BIG[word[0]] for word in ("kilo", "mega", "giga", "tera", "peta", "exa", "zetta", "yotta")}
_WORDS = {"hundred": 1e2, "thousand": 1e3, "million": 1e6, "billion": 1e9, "trillion": 1e12}
_BIG |= _WORDS
_TWICE = {prefix: 2 * by for prefix, by in _BIG.items()}  # the FLOPs of a multiply-add
_EIGHTH = {prefix: by / 8 for prefix, by in _BIG.items()}
_SMALL = {"": 1, "m": 1e-3, "µ": 1e-6, "μ": 1e-6, "u": 1e-6, "n": 1e-9, "milli": 1e-3, "micro": 1e-6, "nano": 1e-9}
_PREFIX = f"({'|'.join(sorted(_BIG, key=len))})[ -]?"  # the empty one first: MACs are no mega-ACs
_OPERATIONS = "(?:flops?|(?:floating[- ]point )?op(?:eration)?s?)"
_SECOND = r"(?: ?(?:\/|per|a) ?(?:second|sec|s)|ps)"
_NOT_PER = r"(?! ?(?:\/|per|a) ?(?:s|sec|second|b|byte)(?![a-z]))"
_NUMBER = "[0-9]+(?:[.,][0-9]+)?"
_PER_CENT = " ?(?:%|per ?cent)"
_SHARE = [[r"()(?:%|per ?cent|percentage points?|pct|p\.c\.?)", {"": 0.01}], [r"()(?:‰|per ?mill?e?)", {"": 0.001}]]
_TIMES = [r"()(?:×|x|times|fold)", {"": 1}]
_MORE, _LESS = " +(?:more|larger|longer|higher|faster)(?![a-z])", " +(?:less|fewer|smaller|shorter|lower)(?![a-z])"
_SUBJECT = "(?:(?:it|they) )?(?:(?:would|will) )?(?:(?:stays?|remains?) )?(?:(?:just|exactly|still) )?"
_STAYS = (  # as it was
    f"(?:no (?:change|difference|effect)|(?:(?:it|they) )?do(?:es)?(?:n['’]t| not) change"
    f"|{_SUBJECT}(?:(?:the )?same|unchanged|equal|as before)(?: as before)?)"
)
_SAME = (  # as much as the other
    f"(?:{_STAYS}(?: (?:number|amount)(?: of)?)?|{_SUBJECT}(?:as|equally) (?:many|much|large)(?: as before)?"
    "|no (?:increase|reduction|growth|savings?|extra|additional|more|less|fewer))"
)
_AS_FAST = f"(?:{_SUBJECT}(?:as|equally) (?:fast|long)(?: as before)?|no (?:gain|speed-?up|faster|slower))"
_NOT = "(?!no |not |none |nothing |neither |never )"
_MORE_THAN = (
    "(?:(?:more|greater|larger|higher|longer|less|fewer|smaller|lower|shorter) than|over|above|beyond|below|under)"
)

_ONES = "one two three four five six seven eight nine".split()
_TEENS = "ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen".split()
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()
_PARTS = "hal(?:f|ves) thirds? (?:quarter|fourth)s? fifths? sixths? sevenths? eighths? ninths? tenths?".split()
_PART = f"(?:{'|'.join(_PARTS)})(?![a-z])"
_SPELLED = [
    [r"^(?:zero|none|nothing|nil|no more)(?: at all)?(?: (?:is |are )?saved)?(?![a-z])|^not at all$", "0"],
    [r"^no(?= (?:(?:more|extra|additional) )?(?:flops?|bytes?)(?: (?:are )?saved)?$)", "0"],
    [r"^(?:twice|double[ds]?)(?![a-z])", "2"],
    [r"^(?:(?:an?|one) )?hundred(?:-?fold)?(?![a-z])", "100"],
    [rf"^an? (?={'|'.join(_WORDS)}|{_PART})", "1 "],
    *([rf"^{word}[ -](?=(?:{'|'.join(_ONES)})(?![a-z]))", f"{n}"] for n, word in enumerate(_TENS, 2)),  # "twenty-two"
    *([rf"^{word}(?![a-z])", f"{n}0"] for n, word in enumerate(_TENS, 2)),
    *(
        [rf"(?:^|(?<=^[2-9])|(?<= to )|(?<= and )|(?<= by )){word}(?:-?fold)?(?![a-z])", f"{n}"]
        for n, word in enumerate(_ONES + _TEENS, 1)
    ),
    [rf"(?<=[0-9]) and (?:an? )?(?={_PART})", " and 1 "],
    *([rf"^{part}(?![a-z])", f"1/{n}"] for n, part in enumerate(_PARTS, 2)),
    *([rf"(?<=[0-9])[ -]{part}(?![a-z])", f"/{n}"] for n, part in enumerate(_PARTS, 2)),
    [r"(?<=[0-9]) and (?=[0-9]+\/)", " "],  # "two and 1/3"
]

READING: dict[str, Any] = {
    "literal": r"(?:[1-9][0-9]{0,2}(?:[,_ '’][0-9]{3})+(?![0-9])(?:\.[0-9]*)?|[0-9]+(?:[.,][0-9]*)?|[.,][0-9]+)(?:e[-+]?[0-9]+)?",
    "times": r" *([*\/])(?= *(?:[-+0-9.,(√]|e *\*\*|exp|sqrt))",  # "7,946/s" is no division
    "rewritten": [  # in this order, and only for these kinds or units where any are named
        [r"[\u00a0\u2009\u202f\t]", " "],
        [r"^[\"“”'‘’`*]+|[\"“”'‘’`*.!?… ]+$", ""],  # quotes, bold, the end of a sentence
        [r"(?<=[a-z%]) \([^()]*\)$", ""],  # a remark: "65.13 TFLOP/s (fp16)"
        [r"^.*[=≈≃≅](?![^(]*\)) *(?=.)", ""],  # "T = 161", "280/240 = 1.17"
        [
            rf"^(?: *(?:(?:[a-z][*']? *)?[~∼≥≤<>]|(?:it['’]s|(?:{_NOT}[a-z]+ ){{1,3}}(?:is|are|stays|remains)|(?:(?:it|they) )?(?:(?:would|will) )?(?:be|stays?|remains?)|still|about|approximately|approx\.?|roughly|around|circa|ca?\.?|nearly|almost|exactly|just|at least|at most|at|{_MORE_THAN}|up to|from|by|times|(?:an? |the )?factor(?: of)?)(?= )))+ *",
            "",
        ],
        [r"^(?:us ?\$|\$|usd(?![a-z])) *", "", "", "$"],
        [r" ?(?:\/|per|for|a) ?(?:(?:1|a)? ?m(?:illion)?|1[, ]?000[, ]?000)(?: ?tok[a-z]*)?$", "", "$"],
        [rf"^{_STAYS}(?: at|[,:])? +(?=[0-9])", ""],  # "unchanged at 30 %"
        [rf"^(?:{_SAME}(?: flops?| bytes?)?|{_AS_FAST})(?![a-z])|^(?:none|not at all)$", "1.0", "×"],
        [r"^(?:(?:it|this|that) )?saves? ", "", "FLOPs", "bytes"],
        [rf"^{_SAME}(?: work)?(?![a-z])|^no$", "0", "FLOPs", "bytes"],
        [
            r"(?<=[0-9]) ?([kmg]?)(?:t(?= ?(?:\/|per))|tok(?:en)?s?(?![a-z]))",
            r" \1 tokens",
            "tokens",
            "tokens/s",
        ],  # "37 t/s"
        [r"^(?:(?:the )?(?:kernel|side|size|width)(?: (?:size|of))* )+(?=[0-9])", "", "side"],
        [r"^(?:an? |the )(?=[0-9])", ""],
        [r"^[x×] *(?=[0-9])", ""],
        *_SPELLED,
        [r"^[a-z ]+: ", ""],  # "answer: 161"
        [r"^([0-9]+)(?: *[x×] *|[ -]by[ -])\1(?![0-9])", r"\1", "side"],  # a 5 × 5 kernel is 5
        *([sign, f" {part}"] for sign, part in zip("½⅓⅔¼¾", "1/2 1/3 2/3 1/4 3/4".split(), strict=True)),
        [r"[·⋅* ]+(s|sec|second|b|byte)(?:\^|\*\*)?[({]?[⁻−-][¹1][)}]?(?![0-9])", r"/\1"],
        [r"(?<=[0-9)e])(?=[⁻⁰¹²³⁴⁵⁶⁷⁸⁹])", "**"],
        *([raised, sign] for raised, sign in zip("⁻⁰¹²³⁴⁵⁶⁷⁸⁹−", "-0123456789-", strict=True)),
        [r"([0-9)]) *(?:x|times)(?= *[0-9(])", r"\1*"],
        [r" *\\(?:cdot|times) *", "*"],
        [r"[×·⋅∙•](?= *(?:[-0-9(√]|e *(?:\^|\*\*)|exp|sqrt))", "*"],
        [r"\^", "**"],
        [r"\*\* *[({] *([-+]?[0-9]+) *[)}]", r"**\1"],
        [r"^([-+]?[0-9.,]+)(?: *\*| ) *10 *\*\* *([-+]?[0-9]+)", r"\1e\2"],  # as exact as its first factor
        [r"(?<=[0-9]) +e(?=[-+]?[0-9]+(?![0-9.]))", "e"],
        [r"(?<=[0-9])-fold(?![a-z])", " fold"],
        [rf"^\+ *({_NUMBER}){_PER_CENT}", r"\1 % more", "×"],
        [rf"^- *({_NUMBER}){_PER_CENT}", r"\1 % less", "×"],
        [rf"^({_NUMBER}){_PER_CENT}(?={_MORE}|{_LESS})", r"\1/100", "×"],
        [rf"^({_NUMBER}\/[0-9]+){_MORE}", r"(1+\1)", "×"],
        [rf"^({_NUMBER}\/[0-9]+){_LESS}", r"(1-\1)", "×"],
        [r"(?<=[0-9)]) ?% ?(?=[*\/] *[0-9(])", "/100"],  # "52 % * 3/4"
        [rf"^({_NUMBER}) +(?:(?:out )?of|in) +({_NUMBER})$", r"\1/\2"],
        [r" +to +(?=[0-9])", ":"],
        [r"^(-?)([0-9]+) +([0-9]+ *\/ *[0-9]+)(?= *[^0-9]*$)", r"\1(\2+\3)"],
        [r"^\+ *(?=[0-9.,])", ""],
    ],
    # What stands around a unit: "50 more MB at least".
    "beside": r"^(?:more|fewer|less|extra|additional)(?![a-z]) *| *\(?(?:at least|at most|or more|in all|in total|altogether|at all|each|or so|approx(?:\.|imately)?|roughly|rounded)\)?[.! ]*$",
    # What stands behind a number, by kind, and by how much its first group multiplies. More specific kinds stand first.
    "kinds": {
        "FLOPs per byte": [[_PREFIX + rf"{_OPERATIONS} ?(?:\/|per|a) ?(?:b|bytes?)", _BIG]],
        "MACs": [[_PREFIX + rf"(?:macs?|multiply-adds?){_NOT_PER}", _BIG]],
        "FLOPs": [
            [_PREFIX + rf"{_OPERATIONS}{_NOT_PER}", _BIG],
            [_PREFIX + rf"(?:macs?|multiply-adds?){_NOT_PER}", _TWICE],
        ],
        "FLOP/s": [  # TFLOPS may be either
            [_PREFIX + rf"(?:{_OPERATIONS}{_SECOND}|(?:flops?|ops)(?! ?(?:\/|per)))", _BIG],
            [_PREFIX + rf"macs?{_SECOND}", _TWICE],
        ],
        "bytes/s": [[_PREFIX + rf"(?:b|bytes?){_SECOND}", _BIG], [_PREFIX + rf"bits?{_SECOND}", _EIGHTH]],
        "bytes": [[_PREFIX + rf"(?:b|bytes?){_NOT_PER}", _BIG], [_PREFIX + rf"bits?{_NOT_PER}", _EIGHTH]],
        "s": [
            [f"({'|'.join(_SMALL)})[ -]?(?:s|secs?|seconds?)", _SMALL],
            [r"()min(?:ute)?s?", {"": 60}],
            [r"()h(?:ours?|rs?)?", {"": 3600}],
            [r"()d(?:ays?)?", {"": 86400}],
            [r"()w(?:ee)?ks?", {"": 604800}],
        ],
        "%": [*_SHARE, _TIMES],
        "×": [_TIMES, *_SHARE],
        "$": [
            [r"()(?:us )?(?:\$|dollars?|usd)(?! ?(?:\/|per))", {"": 1}],
            [r"()(?:us )?(?:cents?|ct?|¢)(?! ?(?:\/|per))", {"": 0.01}],
        ],
    },
    "end": r"(?![a-z0-9]|-[a-z])[^0-9]*",
    # A prefix alone: "65.13 T", "1.1B parameters".
    "alone": [_PREFIX, _BIG],
    "billion": [r"(bn?)", {"b": 1e9, "bn": 1e9}],
    # Of these, any other word is refused.
    "strict": ["FLOPs per byte", "FLOP/s", "FLOPs", "bytes/s", "bytes", "s", "$"],
    "unprefixed": ["s", "%"],  # these take no large prefix
    "counted": ["count", "side"],  # of these, a whole number is never rounded
    "stays": rf"(?:the [a-z]+ )?{_STAYS}[.! ]*",  # an answer, where the box says what stays
    "bound": rf" *(?:[a-z][*']? *)?(?:[<>](?!=)|(?:it(?: is|['’]s) )?{_MORE_THAN}(?![a-z]))",
    # A letter among numbers that is no unit and no prefix: the R of "20·R".
    "formula": r"(?=.*[-+*\/·×0-9])(?=(?:[-+*\/·×() 0-9.,]|(?<![a-z])[a-z](?![a-z]))+$).*?(?:(?:^|[-+*·×(] *)(?!e)|(?<=[0-9)]) *(?=[afijlnoqrv]))([a-wyz])(?![a-z0-9])",
    # What a word may come with: "It is a count.", "aten::mv.default".
    "around": [
        r"^[\"“”'‘’`* ]+|[\"“”'‘’`*.! ]+$",
        r"^(?:it(?: is|['’]s) )?(?:(?:the )?(?:answer|option|choice|letter|cause|reason|program)(?: is)?:? )?(?:an? (?!is )|the )?",
        r"^[\"“”'‘’`*]+|[\"“”'‘’`*]+$",
        r"^(?:torch\.ops\.)?(?:aten|torch)(?:\.|::)|(?:\.default)?(?:\(\))?$",
    ],
    "unread": "not a number that can be read here: write 1,234 or 7.25 GB or 12 %",
    "foreign": "asked for {}: “{}” is something else",
}
