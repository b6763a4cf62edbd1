"""The words of pictures in English and Korean. Nothing here imports torch."""

from typing import Any, Literal

Language = Literal["en", "ko"]

MARKS: dict[str, dict[str, str]] = {  # what the mark of a token means
    "en": {
        "special": "special token",
        "unknown": "not in the vocabulary",
        "piece": "continues a word",
        "masked": "replaced by the mask token, with the original",
        "random": "replaced by a random token, with the original",
        "kept": "predicted but unchanged, with the original",
        "replaced": "sampled from the generator, with the original",
        "found": "judged to be replaced, with the probability of it",
        "wrong": "judged wrongly, with the probability of it",
        "answer": "the answer",
        "target": "with the next token, which it predicts",
    },
    "ko": {
        "special": "특수 토큰",
        "unknown": "어휘에 없음",
        "piece": "단어가 이어짐",
        "masked": "마스크 토큰으로 바뀜 (원래 토큰과 함께)",
        "random": "무작위 토큰으로 바뀜 (원래 토큰과 함께)",
        "kept": "예측하지만 그대로 둠 (원래 토큰과 함께)",
        "replaced": "생성기가 뽑은 토큰 (원래 토큰과 함께)",
        "found": "바뀌었다고 판별함 (그 확률과 함께)",
        "wrong": "잘못 판별함 (그 확률과 함께)",
        "answer": "답",
        "target": "예측할 다음 토큰과 함께",
    },
}
WORDS: dict[str, dict[str, str]] = {
    "en": {
        "tokens": "Tokens",
        "input": "input",
        "count": "{tokens} of {words}, from a vocabulary of {vocabulary:,}",
        "tokens.one": "{number} token",
        "tokens.many": "{number} tokens",
        "words.one": "{number} word",
        "words.many": "{number} words",
        "unknown.one": "{number} of the tokens stands for text that the vocabulary does not have",
        "unknown.many": "{number} of the tokens stand for text that the vocabulary does not have",
        "position": "position",
        "token": "token",
        "id": "id",
        "segment": "segment",
        "text": "text",
        "masking": "Masking",
        "copy": "copy {number}",
        "share": "{share:.0%} of the tokens are predicted, as {unit}; the loss is computed at these only",
        "unit.token": "single tokens",
        "unit.word": "whole words",
        "unit.ngram": "n-grams of whole words",
        "predicted": "predicted tokens",
        "here": "here",
        "expected": "expected",
        "masked": "masked",
        "random": "random",
        "kept": "kept",
        "detection": "Replaced token detection",
        "step.masked": "{number}: masked",
        "step.generated": "{number}: generated",
        "step.judged": "{number}: judged",
        "sampled": "masks are filled by samples from {by}; a sample that equals the original counts as original",
        "generator": "its generator",
        "own head": "the model's own vocabulary head, as there is no generator",
        "judged": "judged correctly: {right} of {tokens} tokens",
        "attention": "Attention",
        "rows": "each row token attends to the column tokens; choose a layer and a head, or point at a token",
        "both": "attends to both sides",
        "left": "left to right: attends to the token and those before it",
        "right": "right to left: attends to the token and those after it",
        "answer": "Answer",
        "passage": "passage",
        "found answer": "answer: {answer}",
        "no answer": "no answer: this score is above the threshold",
        "threshold": "no-answer score {score:.2f}, threshold {threshold:.2f}; no answer at the first token: start "
        "{start:.1%}, end {end:.1%}",
        "start": "start",
        "end": "end",
    },
    "ko": {
        "tokens": "토큰",
        "input": "입력",
        "count": "{words}가 {tokens}로 나뉩니다. 어휘의 크기는 {vocabulary:,}입니다",
        "tokens.one": "토큰 {number}개",
        "tokens.many": "토큰 {number}개",
        "words.one": "단어 {number}개",
        "words.many": "단어 {number}개",
        "unknown.one": "토큰 {number}개는 어휘에 없는 글자를 나타냅니다",
        "unknown.many": "토큰 {number}개는 어휘에 없는 글자를 나타냅니다",
        "position": "위치",
        "token": "토큰",
        "id": "번호",
        "segment": "세그먼트",
        "text": "글자",
        "masking": "마스킹",
        "copy": "{number}번째",
        "share": "토큰의 {share:.0%}를 {unit} 단위로 예측합니다. 손실은 이 토큰에서만 계산합니다",
        "unit.token": "토큰",
        "unit.word": "단어 전체",
        "unit.ngram": "여러 단어(n-그램)",
        "predicted": "예측하는 토큰",
        "here": "여기",
        "expected": "기댓값",
        "masked": "가림",
        "random": "무작위",
        "kept": "그대로",
        "detection": "바뀐 토큰 판별",
        "step.masked": "{number}: 가리기",
        "step.generated": "{number}: 생성",
        "step.judged": "{number}: 판별",
        "sampled": "빈칸은 {by}에서 뽑아 채웁니다. 원래 토큰과 같은 것이 뽑히면 바뀌지 않은 것으로 칩니다",
        "generator": "생성기",
        "own head": "생성기가 없으므로 모델 자신의 어휘 헤드",
        "judged": "토큰 {tokens}개 가운데 {right}개를 바르게 판별했습니다",
        "attention": "어텐션",
        "rows": "행의 토큰이 열의 토큰을 봅니다. 층과 헤드를 고르거나 토큰을 가리켜 보세요",
        "both": "양쪽을 모두 봅니다",
        "left": "왼쪽에서 오른쪽: 자기와 앞의 토큰만 봅니다",
        "right": "오른쪽에서 왼쪽: 자기와 뒤의 토큰만 봅니다",
        "answer": "답",
        "passage": "지문",
        "found answer": "답: {answer}",
        "no answer": "답 없음: 이 점수가 기준값보다 높습니다",
        "threshold": "답 없음 점수 {score:.2f}, 기준값 {threshold:.2f}; 첫 토큰(답 없음)의 확률: 시작 {start:.1%}, "
        "끝 {end:.1%}",
        "start": "시작",
        "end": "끝",
    },
}


def say(language: Language, name: str, /, **values: Any) -> str:
    """A text of `WORDS` with these values.

    >>> say("en", "copy", number=2), say("ko", "copy", number=2)
    ('copy 2', '2번째')
    """
    return WORDS[language][name].format(**values)


def count(language: Language, name: str, number: int) -> str:
    """A text of `WORDS` about a number of things, in the singular for one.

    >>> count("en", "words", 1), count("en", "words", 2)
    ('1 word', '2 words')
    """
    return say(language, f"{name}.{'one' if number == 1 else 'many'}", number=number)
