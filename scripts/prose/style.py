"""The project's style: plain technical English, as the Kubernetes, vLLM and Starlette documentation is written."""

from __future__ import annotations

from proselint.registry.checks import Check, CheckFlags
from proselint.registry.checks.types import ExistenceSimple

PROSELINT_CHECKS = (
    "cliches",
    "malapropisms",
    "misc.phrasal_adjectives",
    "mixed_metaphors",
    "mondegreens",
    "needless_variants",
    "nonwords",
    "redundancy",
    "spelling",
)
"""proselint's own checks that suit technical prose."""


def _starting_with(*words: str) -> str:
    """Returns a pattern for the words at the start of a docstring, comment, message, sentence or Markdown line."""
    capitalized = "|".join(word.capitalize() for word in words)
    return rf"(?:(?:[¶†‡]|[.;:] )(?:{'|'.join(words)})|\n(?:#+ |[-*] |\d+[.] |\| )?(?-i:{capitalized}))\b"


_RULES = {
    "whoever": (r"\b(?:whoever|whomever|whosoever|whose body|whom it|no one|nobody|somebody)\b", "name the subject"),
    "who": (
        _starting_with("who", "whose", "whom") + r" [^?\n]*\n",
        "start with a noun: 'Clients that …'",
    ),
    "what": (
        _starting_with("what", "whatever") + r" [^?\n]*\n",
        "start with a noun or a verb: 'Returns …'",
    ),
    "of": (
        _starting_with("of") + r" (?:a|an|the|its|each|all|one|it|this|what|which|whom)\b",
        "start with a noun or a verb",
    ),
    "told": (r"\b(?:told|telling|tells)\b", "use 'receives', 'reports', 'is given'"),
    "said": (r"\b(?:says|said|saying)\b", "use 'reports', 'contains', 'specifies', 'returns'"),
    "hear": (r"\b(?:hears|heard|hearing)\b", "use 'receives', 'is notified'"),
    "anew": (r"\banew\b", "use 'again'"),
    "so many": (r"\b(?:so|as) many\b", "name the number or the parameter"),
    "for ever": (r"\bfor ever\b", "use 'forever' or 'until …'"),
    "it is": (
        r"\bwhat it is that\b|\bthat is what\b|\bis what\b|\bof what\b|\bfor what\b|\bwith what\b",
        "name the thing",
    ),
    "none": (r"\b(?:is|are|was|were|has|have|be) (?:none|nought)\b|\bthere is no\b", "use 'does not exist', 'not a …'"),
    "is no": (r"\b(?:is|are|was|were) no (?:[a-z]+)\b", "use 'is not a …'"),
    "yet to be": (r"\byet to be\b|\bis to be\b|\bare to be\b", "use 'not … yet', 'must be'"),
    "one likes": (r"\bone (?:likes|wishes|wants|pleases)\b|\bas one (?:does|would|may)\b", "name the subject"),
    "room": (r"\brooms?\b", "use 'module', 'space', 'capacity'"),
    "beside": (r"\bbeside\b", "use 'next to', 'alongside', 'compared with'"),
    "in vain": (r"\bin vain\b|\blest\b|\bhence\b|\bthereof\b|\bwherein\b|\bwhereby\b", "use plain words"),
    "grave": (r"\b(?:bury|buries|buried|epitaph|grave|poisonous)\b", "use 'clean up', 'exit reason'"),
    "heed": (r"\b(?:heeds?|heeded|unheeded)\b", "use 'use', 'ignore'"),
    "fragment": (
        r"¶(?:And|As|At|Because|But|By|For|From|How|In|Not|Nothing|Only|That|Those|Until|Where|Which|While|With)\b",
        "start with a noun or a verb, so that the docstring makes sense alone",
    ),
    "circle": (r"\bcircles?\b", "use 'reference cycle'"),
    "idiom": (
        r"\b(?:at|in) hand\b|\blets? go\b|\bto be had\b|\bcomes? (?:of|to anything|to nothing)\b|\bhang on\b",
        "use plain words",
    ),
    "spelling": (
        (
            r"\b\w*(?:colour|neighbour|behaviour|favour|licence|greyscale|misspelt|whilst)\w*\b"
            r"|\banalys(?:e|es|ed)\b|\b(?:to|after|up|back)wards\b"
            r"|\b\w*(?:critic|initial|maxim|minim|normal|optim|organ|quant|random|recogn|serial|summar|synchron)"
            r"is(?:e|es|ed|er|ing|ation)\b"
        ),
        "use American spelling: 'color', 'serialize', 'toward'",
    ),
    "own": (r"\bof (?:its|their|your) own[.,;:]", "use 'a separate …' or 'its own …'"),
    "none prefix": (r"¶None: ", "describe the value: 'The timeout, or None for no timeout.'"),
    "elliptical comment": (
        r"†(?:as|else|like|otherwise|so|the latter|until|which|with it)\b",
        "write a sentence that makes sense without the code before it",
    ),
    "replace by": (r"\breplaces? [^.,:;\n]{1,50} by (?:a|an|the)\b", "use 'replaces … with …'"),
    "design": (r"\bDESIGN §", "cite a paper section (docs/bibliography.md)"),
}

CHECKS = tuple(
    Check(
        path=f"style.{name.replace(' ', '_')}",
        check_type=ExistenceSimple(pattern=pattern),
        message=f"{name}: {advice}",
        flags=CheckFlags(allow_quotes=True),
    )
    for name, (pattern, advice) in _RULES.items()
)
