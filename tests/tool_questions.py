"""Questions that only a graph can answer: which of two tools is used for a purpose. Tools come in pairs, and each is
used for one purpose of its pair (in the graph: its last word) and not for the other; the questions to answer are on
tools that training never saw."""

from pathlib import Path

from hornbook.graph.build import build_graph

ENGLISH = (
    *(
        "sew a shirt/needle/paint a wall/brush",
        "cut bread/knife/eat soup/spoon",
        "cut paper/scissors/drive a nail/hammer",
    ),
    *(
        "sweep the floor/broom/wash a window/sponge",
        "catch fish/net/chop wood/axe",
        "open a tin/opener/make a hole/drill",
    ),
    *("write a letter/pen/erase a word/rubber", "tidy my hair/comb/clean my teeth/toothbrush"),
    *("cut the lawn/mower/gather leaves/rake", "tighten a screw/screwdriver/tighten a nut/wrench"),
    *("take a photo/camera/record a song/microphone", "light a candle/match/stop a fire/extinguisher"),
    *("cross a lake/boat/climb a roof/ladder", "knit a scarf/wool/tie a parcel/string"),
    *("measure a length/ruler/weigh flour/scales", "lock a door/key/ring a bell/rope"),
)
KOREAN = (
    *("옷/바늘/벽/붓", "빵/칼/국/숟가락", "종이/가위/못/망치", "바닥/빗자루/창문/걸레", "물고기/그물/나무/도끼"),
    *("편지/연필/글자/지우개", "머리/빗/이빨/칫솔", "나사/드라이버/볼트/렌치", "사진/카메라/노래/마이크"),
    *("촛불/성냥/화재/소화기", "호수/배/지붕/사다리", "목도리/털실/소포/끈", "길이/자/밀가루/저울", "문/열쇠/종/밧줄"),
)
ASKED = {
    "en": ("They dug the ground to {}. With what?", ENGLISH, "plant flowers/trowel/build a house/excavator"),
    "ko": ("{}{} 위해 땅을 팠다. 무엇으로?", KOREAN, "꽃/모종삽/집/굴착기"),
}
BASE = {"leaves": "leaf", "teeth": "tooth", "flowers": "flower"}
GROUND = {"en": "ground", "ko": "땅"}


def write_graph(folder: Path, language: str) -> Path:
    """The graph of all tools, also of those that only the questions of the test are about."""
    _, pairs, unseen = ASKED[language]
    lines = ["head\trelation\ttail"]
    for pair in (*pairs, unseen):
        first, one, second, other = pair.split("/")
        first, second = (BASE.get(word, word) for word in (each.split()[-1] for each in (first, second)))
        lines += [f"{one}\tUsedFor\t{first}", f"{one}\tNotUsedFor\t{second}"]
        lines += [f"{other}\tUsedFor\t{second}", f"{other}\tNotUsedFor\t{first}"]
        lines += [f"{tool}\tAtLocation\t{GROUND[language]}" for tool in (one, other)]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "facts.tsv").write_text("\n".join(lines), encoding="utf-8")
    build_graph(folder / "facts.tsv", folder / "graph")
    return folder / "graph"


def questions(language: str) -> list[dict]:
    """Both questions on every pair of tools, each with the answers in both orders."""
    asked, pairs, _ = ASKED[language]
    rows = []
    for pair in pairs:
        first, one, second, other = pair.split("/")
        for purpose, label in ((first, 0), (second, 1)):
            particle = "을" if (ord(purpose[-1]) - ord("가")) % 28 else "를"  # after a consonant, after a vowel
            context = asked.format(purpose, particle)
            rows.append({"context": context, "choices": [one, other], "label": label})
            rows.append({"context": context, "choices": [other, one], "label": 1 - label})
    return rows
