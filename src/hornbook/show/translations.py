"""The words of pictures in English and Korean. Nothing here imports torch."""

from typing import Any, Literal, get_args

Language = Literal["en", "ko"]

# Texts by key, in the order of `Language`.
LEGEND: dict[str, tuple[str, str]] = {  # what the mark of a token means
    "special": ("special token", "특수 토큰"),
    "unknown": ("not in the vocabulary", "어휘에 없음"),
    "piece": ("continues a word", "단어가 이어짐"),
    "masked": ("replaced by the mask token, with the original", "마스크 토큰으로 바뀜 (원래 토큰과 함께)"),
    "random": ("replaced by a random token, with the original", "무작위 토큰으로 바뀜 (원래 토큰과 함께)"),
    "kept": ("predicted but unchanged, with the original", "예측하지만 그대로 둠 (원래 토큰과 함께)"),
    "replaced": ("sampled from the generator, with the original", "생성기가 뽑은 토큰 (원래 토큰과 함께)"),
    "found": ("judged to be replaced, with the probability of it", "바뀌었다고 판별함 (그 확률과 함께)"),
    "wrong": ("judged wrongly, with the probability of it", "잘못 판별함 (그 확률과 함께)"),
    "answer": ("the answer", "답"),
    "target": ("with the next token, which it predicts", "예측할 다음 토큰과 함께"),
}
WORDS: dict[str, tuple[str, str]] = {
    "tokens": ("Tokens", "토큰"),
    "input": ("input", "입력"),
    "count": (
        "{tokens} of {words}, from a vocabulary of {vocabulary:,}",
        "{words}가 {tokens}로 나뉩니다. 어휘의 크기는 {vocabulary:,}입니다",
    ),
    "tokens.one": ("{number} token", "토큰 {number}개"),
    "tokens.many": ("{number} tokens", "토큰 {number}개"),
    "words.one": ("{number} word", "단어 {number}개"),
    "words.many": ("{number} words", "단어 {number}개"),
    "unknown.one": (
        "{number} of the tokens stands for text that the vocabulary does not have",
        "토큰 {number}개는 어휘에 없는 글자를 나타냅니다",
    ),
    "unknown.many": (
        "{number} of the tokens stand for text that the vocabulary does not have",
        "토큰 {number}개는 어휘에 없는 글자를 나타냅니다",
    ),
    "position": ("position", "위치"),
    "token": ("token", "토큰"),
    "id": ("id", "번호"),
    "segment": ("segment", "세그먼트"),
    "text": ("text", "글자"),
    "masking": ("Masking", "마스킹"),
    "copy": ("copy {number}", "{number}번째"),
    "share": (
        "{share:.0%} of the tokens are predicted, as {unit}; the loss is computed at these only",
        "토큰의 {share:.0%}를 {unit} 단위로 예측합니다. 손실은 이 토큰에서만 계산합니다",
    ),
    "unit.token": ("single tokens", "토큰"),
    "unit.word": ("whole words", "단어 전체"),
    "unit.ngram": ("n-grams of whole words", "여러 단어(n-그램)"),
    "predicted": ("predicted tokens", "예측하는 토큰"),
    "here": ("here", "여기"),
    "expected": ("expected", "기댓값"),
    "masked": ("masked", "가림"),
    "random": ("random", "무작위"),
    "kept": ("kept", "그대로"),
    "detection": ("Replaced token detection", "바뀐 토큰 판별"),
    "step.masked": ("{number}: masked", "{number}: 가리기"),
    "step.generated": ("{number}: generated", "{number}: 생성"),
    "step.judged": ("{number}: judged", "{number}: 판별"),
    "sampled": (
        "masks are filled by samples from {by}; a sample that equals the original counts as original",
        "빈칸은 {by}에서 뽑아 채웁니다. 원래 토큰과 같은 것이 뽑히면 바뀌지 않은 것으로 칩니다",
    ),
    "generator": ("its generator", "생성기"),
    "own head": (
        "the model's own vocabulary head, as there is no generator",
        "생성기가 없으므로 모델 자신의 어휘 헤드",
    ),
    "judged": (
        "judged correctly: {right} of {tokens} tokens",
        "토큰 {tokens}개 가운데 {right}개를 바르게 판별했습니다",
    ),
    "attention": ("Attention", "어텐션"),
    "rows": (
        "each row token attends to the column tokens; choose a layer and a head, or point at a token",
        "행의 토큰이 열의 토큰을 봅니다. 층과 헤드를 고르거나 토큰을 가리켜 보세요",
    ),
    "bidirectional": ("attends to both sides", "양쪽을 모두 봅니다"),
    "causal": ("left to right: attends to the token and those before it", "왼쪽에서 오른쪽: 자기와 앞의 토큰만 봅니다"),
    "answer": ("Answer", "답"),
    "passage": ("passage", "지문"),
    "found answer": ("answer: {answer}", "답: {answer}"),
    "no answer": ("no answer: this score is above the threshold", "답 없음: 이 점수가 기준값보다 높습니다"),
    "threshold": (
        "no-answer score {score:.2f}, threshold {threshold:.2f}; no answer at the first token: start "
        "{start:.1%}, end {end:.1%}",
        "답 없음 점수 {score:.2f}, 기준값 {threshold:.2f}; 첫 토큰(답 없음)의 확률: 시작 {start:.1%}, 끝 {end:.1%}",
    ),
    "start": ("start", "시작"),
    "end": ("end", "끝"),
    "forms": ("Inputs of tasks", "과제의 입력 형식"),
    "each form": ("each row is one sequence that the model reads", "한 줄이 모델이 읽는 시퀀스 하나입니다"),
    "first token": ("the first token", "첫 토큰"),
    "last token": ("the last token", "마지막 토큰"),
    "form.classification": ("classification ({reads} is classified)", "분류 ({reads}을 분류합니다)"),
    "form.entailment": ("entailment or paraphrase ({reads} is classified)", "함의나 바꿔 쓰기 ({reads}을 분류합니다)"),
    "form.first order": ("similarity, first order", "유사도, 첫 번째 순서"),
    "form.second order": ("similarity, second order (the two are summed)", "유사도, 두 번째 순서 (두 결과를 더합니다)"),
    "form.choice": (
        "multiple choice, one sequence per choice (a logit from {reads}, a softmax over the choices)",
        "여러 보기, 보기마다 시퀀스 하나 ({reads}에서 로짓을 얻고 보기들에 소프트맥스를 씁니다)",
    ),
    "form.answering": (
        "question answering (a start and an end logit for every token of the passage)",
        "질문에 답하기 (지문의 토큰마다 시작 로짓과 끝 로짓을 얻습니다)",
    ),
    "form.tagging": (
        "tagging (a label for the first token of every word)",
        "태깅 (단어마다 첫 토큰에 레이블을 붙입니다)",
    ),
    "parameters of": ("Parameters of {name}", "{name}의 파라미터"),
    "part": ("part", "부분"),
    "number": ("parameters", "파라미터 수"),
    "discriminator": ("discriminator", "판별기"),
    "generator part": ("generator", "생성기"),
    "its embeddings": (
        "the token embeddings are those of the discriminator",
        "토큰 임베딩은 판별기의 것을 함께 씁니다",
    ),
    "its projection": (
        "E x H = {formula} = {number:,}; the token embeddings, V x E, are those of the discriminator",
        "E x H = {formula} = {number:,}. 토큰 임베딩 V x E는 판별기의 것을 함께 씁니다",
    ),
    "size": (
        "L = {layers}, H = {width:,}, I = {inner:,}, heads: {heads}",
        "L = {layers}, H = {width:,}, I = {inner:,}, 헤드: {heads}",
    ),
    "vocabulary": ("token embeddings: V x H = {formula} = {number:,}", "토큰 임베딩: V x H = {formula} = {number:,}"),
    "factorised": (
        "token embeddings: V x E + E x H = {formula} = {number:,}, where V x H would be {full:,}",
        "토큰 임베딩: V x E + E x H = {formula} = {number:,}. V x H라면 {full:,}입니다",
    ),
    "if shared": ("if the blocks shared", "블록이 파라미터를 함께 쓴다면"),
    "total": ("total", "합계"),
    "this model": ("{name} (this model)", "{name} (이 모델)"),
    "shared.none": ("nothing", "함께 쓰지 않음"),
    "shared.attention": ("attention", "어텐션"),
    "shared.ffn": ("the feed-forward network", "피드포워드 신경망"),
    "shared.all": ("everything (ALBERT)", "모두 (ALBERT)"),
}
PARTS: dict[str, tuple[str, str]] = {  # the parts of a model by our names, in print order
    "embeddings.tokens": ("token embeddings", "토큰 임베딩"),
    "project": ("projection of the embeddings (E x H)", "임베딩의 투영 (E x H)"),
    "embeddings.positions": ("position embeddings", "위치 임베딩"),
    "embeddings.segments": ("segment embeddings", "세그먼트 임베딩"),
    "embeddings.norm": ("norm of the embeddings", "임베딩의 정규화"),
    "attention.query": ("query", "쿼리"),
    "attention.key": ("key", "키"),
    "attention.value": ("value", "값"),
    "attention.out": ("attention output", "어텐션 출력"),
    "attention_norm": ("norm of the attention", "어텐션의 정규화"),
    "fc1": ("feed-forward, H x I", "피드포워드, H x I"),
    "fc2": ("feed-forward, I x H", "피드포워드, I x H"),
    "norm": ("norm of the feed-forward network", "피드포워드의 정규화"),
    "entities": ("entity vectors of the graph", "그래프의 개체 벡터"),
    "entity_attention": ("entities: query, key, value, output", "개체: 쿼리, 키, 값, 출력"),
    "entity_attention_norm": ("entities: norm of the attention", "개체: 어텐션의 정규화"),
    "entity_fc1": ("entities: into the fusion (W x I)", "개체: 융합으로 들어감 (W x I)"),
    "entity_fc2": ("entities: out of the fusion (I x W)", "개체: 융합에서 나옴 (I x W)"),
    "entity_norm": ("entities: norm", "개체: 정규화"),
    "final": ("final norm", "마지막 정규화"),
    "pooler": ("pooler", "풀러"),
    "mlm": ("masked-language-model head", "마스크 언어 모델 헤드"),
    "clm": ("next-token head", "다음 토큰 헤드"),
    "sentence": ("sentence head", "문장 헤드"),
    "rtd": ("replaced-token head", "바뀐 토큰 판별 헤드"),
    "reward": ("reward head", "보상 헤드"),
    "entity": ("entity head", "개체 헤드"),
    "task": ("task head", "과제 헤드"),
}


def in_language(texts: tuple[str, str], language: Language) -> str:
    return texts[get_args(Language).index(language)]


def translate(language: Language, key: str, /, **values: Any) -> str:
    """A text of `WORDS` with these values.

    >>> translate("en", "copy", number=2), translate("ko", "copy", number=2)
    ('copy 2', '2번째')
    """
    return in_language(WORDS[key], language).format(**values)


def translate_count(language: Language, key: str, number: int) -> str:
    """A text of `WORDS` with a number of things, in the singular for one.

    >>> translate_count("en", "words", 1), translate_count("en", "words", 2)
    ('1 word', '2 words')
    """
    return translate(language, f"{key}.{'one' if number == 1 else 'many'}", number=number)
