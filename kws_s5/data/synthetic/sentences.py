"""English sentences at random, for synthetic people who talk: everyday words in everyday patterns, of little meaning.

What matters is how they sound: common words run into each other as they do in speech, and no sentence comes twice.
"""

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from kws_s5.errors import UserError

NOUNS = (
    "answer apple army arm aunt autumn baby ball bank basket beach bird boat book bottle bowl box boy bread "
    "bridge brother bucket building bus butter button cake camera candle captain car carpet castle cat chair "
    "cheese chicken child church city class clock cloud coat coffee colour company computer concert cook corner "
    "country cousin crowd cup daughter day dinner doctor dog dollar door dress driver ear earth egg engine "
    "evening eye face factory family farmer father field film finger fire fish floor flower forest friend garden "
    "gate girl glass grandmother grass guest hair hammer hand hat head heart hill history holiday horse hospital "
    "hotel hour house husband idea island jacket job journey judge juice keyboard king kitchen knife lady lake "
    "lamp language lawyer leaf lesson letter library light lion lunch machine market meal meeting message milk "
    "minute mirror money month moon morning mother mountain mouth movie museum music name neighbour newspaper "
    "night noise nose number nurse ocean office orange oven page painting paper parent park party pencil people "
    "pepper phone photograph piano picture pilot place plane plate pocket police potato price problem question "
    "rain reason record restaurant river road roof room rope salt school sea season sentence shadow sheep ship "
    "shirt shoe shop shoulder sister sky snow soldier song soup spoon spring stairs star station stone story "
    "stranger street student sugar suit summer sun table teacher telephone theatre thing ticket time tooth tower "
    "town train tree trouble uncle valley village visitor voice waiter wall watch water weather wedding week "
    "wheel wife window winter woman wood word work world writer year"
)
ADJECTIVES = (
    "angry beautiful better big black blue bright broken brown busy careful cheap clean clever cold dark dear "
    "deep different difficult dry early easy empty expensive famous fast favourite fine foreign free fresh "
    "friendly full funny good great green happy hard heavy high hot huge important interesting kind large last "
    "late lazy little long loud lovely lucky modern narrow new next nice old other own perfect pleasant polite "
    "poor pretty private quiet ready red rich round sad safe same second serious short simple small soft special "
    "strange strong sweet tall terrible thick thin tiny tired usual warm weak wet white whole wide wild wise "
    "wonderful wooden wrong yellow young"
)
DID_IT = (
    "asked answered bought broke brought built called carried caught changed cleaned closed cooked counted "
    "covered cut described drew enjoyed expected explained felt filled finished followed forgot found gave got "
    "had heard helped hid hit invited kept knew learned left liked lost loved made married met missed moved "
    "needed noticed offered opened ordered painted passed picked pulled pushed put read remembered repaired saw "
    "sold sent served shared showed studied took taught thanked threw told touched visited wanted washed watched "
    "wore won wrote"
)
WENT = (
    "arrived came climbed cried danced drove fell flew jumped laughed lived listened ran sang sat shouted slept "
    "smiled spoke stayed stood swam talked travelled waited walked worked"
)
ADVERBS = (
    "again ago almost already always badly carefully certainly early easily finally happily hardly however "
    "immediately maybe never often once perhaps probably quickly quietly rarely really seldom slowly sometimes "
    "soon still suddenly today together tomorrow tonight usually well yesterday"
)
PREPOSITIONS = (
    "about above across after against along among around at before behind below beside between beyond by during "
    "for from in inside into like near of off on onto opposite outside over past since through to toward under "
    "until up upon with without"
)
THE = (
    "the the the the a a my your his her our their this that some every another each one two three four five six "
    "seven eight nine ten many several which no any"
)
SHE = "i you he she it we they everyone nobody someone who mister doctor"
DO = (
    "answer arrive ask be become begin believe bring build buy call carry catch change choose clean come cook cut "
    "decide do draw drink drive eat explain fall feel find finish fly forget get give go grow have hear help hold "
    "keep know laugh learn leave let like listen look lose make meet move need open pay play put read remember "
    "ride right run say see sell send show sing sit sleep speak stand start stay stop study swim take talk teach "
    "tell think throw travel try turn understand use visit wait walk want wash watch wear win work write"
)
# by what they do in PATTERNS: DID takes an object, WENT takes none
SINGLE = {
    "NOUN": NOUNS,
    "ADJECTIVE": ADJECTIVES,
    "DID": DID_IT,
    "WENT": WENT,
    "ADVERB": ADVERBS,
    "PREPOSITION": PREPOSITIONS,
    "THE": THE,
    "SHE": SHE,
    "DO": DO,
}
KINDS: dict[str, Sequence[str]] = {
    **{kind: words.split() for kind, words in SINGLE.items()},
    "WOULD": (
        "could",
        "will",
        "would",
        "might",
        "should",
        "must",
        "can",
        "did",
        "had to",
        "wanted to",
        "tried to",
        "used to",
        "is going to",
        "was about to",
        "never wants to",
    ),
    "AND": ("and", "but", "because", "so", "when", "if", "while", "although", "or", "then", "unless", "as soon as"),
    "WELL": (
        "well",
        "yes",
        "oh",
        "listen",
        "look",
        "please",
        "sorry",
        "of course",
        "all right",
        "to be honest",
        "by the way",
        "in fact",
        "you know",
        "i mean",
        "thank you",
        "not at all",
    ),
}
PATTERNS = (
    "THE ADJECTIVE NOUN DID THE NOUN",
    "THE NOUN WENT PREPOSITION THE NOUN",
    "SHE WOULD DO THE ADJECTIVE NOUN",
    "SHE DID THE NOUN PREPOSITION THE NOUN",
    "THE NOUN PREPOSITION THE NOUN DID THE ADJECTIVE NOUN",
    "ADVERB SHE WOULD DO PREPOSITION THE NOUN",
    "THE NOUN of THE NOUN WENT ADVERB",
    "what if SHE WOULD DO it",
    "where is THE NOUN PREPOSITION THE NOUN",
    "there were ADJECTIVE NOUN PREPOSITION THE NOUN",
    "is THE NOUN ADJECTIVE and THE NOUN ADJECTIVE",
    "SHE WENT ADVERB PREPOSITION THE ADJECTIVE NOUN",
    "how ADJECTIVE THE NOUN is",
    "SHE ADVERB DID it PREPOSITION THE NOUN",
)


def sentence(rng: np.random.Generator, *, without: Collection[str] = ()) -> str:
    """A sentence of one or two clauses; no word or phrase of ``without`` (in small letters) is in it."""
    while True:
        text = _sentence(rng, without)
        bare = f" {text.replace(',', '')} "
        if not any(f" {phrase} " in bare for phrase in without if " " in phrase):
            return text


def _sentence(rng: np.random.Generator, without: Collection[str]) -> str:
    kinds = {kind: kept for kind, words in KINDS.items() if (kept := _without(words, without))}
    patterns = [p for p in _without(PATTERNS, without) if kinds.keys() >= KINDS.keys() & set(p.split())]
    if not patterns:
        raise UserError("no sentence is left to say without these keywords: name fewer words")
    text = _clause(rng, patterns, kinds)
    if "WELL" in kinds and rng.random() < 0.2:
        text = f"{rng.choice(kinds['WELL'])}, {text}"
    if "AND" in kinds and rng.random() < 0.6:
        text = f"{text} {rng.choice(kinds['AND'])} {_clause(rng, patterns, kinds)}"
    return text


def vocabulary() -> tuple[str, ...]:
    """Every word that can come up, sorted."""
    words = {word for kept in KINDS.values() for phrase in kept for word in phrase.split()}
    return tuple(sorted(words | {word for p in PATTERNS for word in p.split() if word not in KINDS}))


def _clause(rng: np.random.Generator, patterns: Sequence[str], kinds: Mapping[str, Sequence[str]]) -> str:
    pattern = str(rng.choice(patterns)).split()
    return " ".join(str(rng.choice(kinds[word])) if word in kinds else word for word in pattern)


def _without(phrases: Sequence[str], words: Collection[str]) -> list[str]:
    return [phrase for phrase in phrases if not set(phrase.split()) & set(words)]
