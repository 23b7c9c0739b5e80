"""Says whether a reply keeps a wish. One line of JSON in, one line out:

    {"kind": "change_case:english_lowercase", "args": {}, "question": "How?", "reply": "boil it."}
    {"kept": true}

The kinds with a colon are those of IFEval, decided by its own checkers, which are read from a checkout (the first
argument) and not shipped. The others are the six preferences of MultiSessionCollab that need no judge: there, a model
decides, and here the rules below do. An empty reply keeps no wish.
"""

import functools
import importlib
import json
import re
import sys
import types

import langdetect
import nltk.tokenize
import punkt

SENTENCES = punkt.PunktSentenceTokenizer(punkt.load_model("english"))
LINE_OF_LIST = re.compile(r"^\s*(?:[-*•]|\d+[.)])\s+\S", re.MULTILINE)
HEADING = re.compile(r"^\s*(?:#{1,6}\s+\S|\*\*[^*\n]+\*\*:?\s*$)", re.MULTILINE)
SUMMARY = re.compile(r"\W*(?:tl;?\s?dr|summary|in (?:short|summary))\b\W+\w", re.IGNORECASE)
CONFIDENCE = re.compile(
    r"\d\s?(?:%|percent)[^.\n]{0,40}\b(?:confiden|certain|sure)"
    r"|\b(?:confiden(?:t|ce)|certain(?:ty)?|sure)(?:\W+(?:level|rating|score|is|of|about|at|in|this|my|answer)){0,5}\W+\d+\s?(?:%|percent)"
    r"|\b(?:high|medium|moderate|low|very|fairly|quite|not|completely|reasonably)\b[^.\n]{0,10}\bconfiden"
    r"|\bconfidence\W+(?:level\W+)?(?:is\W+)?(?:high|medium|moderate|low)\b",
    re.IGNORECASE,
)


def ifeval(checkout):
    """IFEval's classes by their kinds, with tokenizers that need no download."""
    # The package itself imports a command line with further requirements.
    package = types.ModuleType("instruction_following_eval")
    package.__path__ = [f"{checkout}/instruction_following_eval"]
    sys.modules["instruction_following_eval"] = package
    util = importlib.import_module("instruction_following_eval.instructions_util")
    util._get_sentence_tokenizer = lambda: SENTENCES
    words = nltk.tokenize.NLTKWordTokenizer()
    # What nltk.word_tokenize does: sentences first, then their words.
    nltk.word_tokenize = lambda text: [word for one in SENTENCES.tokenize(text) for word in words.tokenize(one)]
    langdetect.DetectorFactory.seed = 0
    return importlib.import_module("instruction_following_eval.instructions_registry").INSTRUCTION_DICT


def last_line(reply):
    return reply.rstrip().rsplit("\n", 1)[-1]


# MultiSessionCollab's "Enforce if ..", as rules.
OURS = {
    "bullets": lambda reply: bool(LINE_OF_LIST.search(reply)),
    "steps": lambda reply: all(re.search(rf"^\W*(?:step )?{n}[.):]", reply, re.M | re.I) for n in (1, 2)),
    "headings": lambda reply: bool(HEADING.search(reply)),
    "tldr": lambda reply: bool(SUMMARY.match(last_line(reply))),
    "three_sentences": lambda reply: len(list(SENTENCES.tokenize(reply))) <= 3,
    "confidence": lambda reply: bool(CONFIDENCE.search(reply)),
}


def kept(kinds, kind, args, question, reply):
    if not reply.strip():
        return False
    if kind in OURS:
        return OURS[kind](reply)
    checker = kinds[kind](kind)
    if "prompt_to_repeat" in checker.get_instruction_args_keys():
        args = {"prompt_to_repeat": question}
    checker.build_description(**args)
    return bool(checker.check_following(reply))


def main():
    kinds = ifeval(sys.argv[1])

    @functools.lru_cache(maxsize=100_000)
    def answer(line):
        return json.dumps({"kept": kept(kinds, **json.loads(line))})

    for line in sys.stdin:
        print(answer(line), flush=True)


if __name__ == "__main__":
    main()
