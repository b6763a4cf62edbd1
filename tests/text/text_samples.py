"""A little text in two languages that the tokenizers of these tests learn from."""

ENGLISH = [
    "The quick brown fox jumps over the lazy dog, and the dog sleeps.",
    "She said: “a naïve café is open in Zürich (until 10 p.m.)!”",
    "Reading is to the mind what exercise is to the body.",
    "The foxes were reading, jumping and sleeping; the dogs weren't.",
]
KOREAN = [
    "한국어 위키백과는 한국어로 운영되는 위키백과의 다국어판 가운데 하나입니다.",
    "빠른 갈색 여우가 게으른 개를 뛰어넘었다. 개는 잠을 잤어요.",
    "한국어로 읽고 한국어로 쓰는 사람은 한국어를 압니다.",
]
DOCUMENTS = (ENGLISH + KOREAN) * 4
KINDS = ["wordpiece", "bpe", "unigram"]
NUM_TOKENS = 480
