"""English stop words. A text rarely ends in one of them, so the GPT-2 paper excludes stop words as predictions of the
last word of LAMBADA. The paper does not list them; these are articles, pronouns, prepositions, conjunctions, auxiliary
verbs, and adverbs that refer to another word."""

_WORDS = """
a an the this that these those
i me my mine myself we us our ours ourselves you your yours yourself yourselves he him his himself she her hers
herself it its itself they them their theirs themselves who whom whose which what
and but or nor so yet if because although though while whereas unless until since than as whether
of in on at by for from with without to into onto upon about above below over under between among through during
before after against toward towards behind beside besides beyond across along around near off up down out
be am is are was were been being do does did done doing have has had having will would shall should can could may
might must ought
not no any some all both each every either neither few more most other another such own same
very too just only even also then there here when where why how again once
s t d ll m re ve don
"""
STOP_WORDS = frozenset(_WORDS.split())
