import random

import pytest

from hornbook.text.sentences import split_sentences


@pytest.mark.parametrize(
    "sentences",
    [
        ["Mr. Smith met Dr. Kim.", "They left."],
        ["He lives in the U.S.", "The law changed."],
        ["The U.S. Army came.", "It stayed."],
        ["J. R. R. Tolkien wrote it.", "Nobody else did."],
        ["See No. 5 for this.", "He said no.", "Then he left."],
        ["It grew by 3.14 percent to 1,000.50.", "Version 2.0.1 is out."],
        ["Open www.example.com/a.html or notes.txt now.", "Then close it."],
        ['"Stop!" he said.', '"Why?"', "She left."],
        ["“It is over.”", "He slept."],
        ["He left (at last.)", "She stayed [for now.]", "Good."],
        ["Well... I think so.", "Yes."],
        ["and then ... nothing came", "\nNext"],
        ["Take fruit, e.g. apples, i.e. this one.", "Eat."],
        ["Apples, pears, etc.", "The rest is gone."],
        ["Bell Labs Inc. Chairman Jones spoke.", "We listened."],
        ["It opened on Jan. 5 in Ohio.", "In Jan.", "It rained."],
        ["Come at 5 p.m. Monday.", "It ends at 9 p.m.", "The bus leaves then."],
        ["1. Introduction to words.", "2. More words."],
        ["Really?!", "Yes.", "What a day!"],
        ["It was vitamin C.", "The doctor knew."],
        ["In 1990.", "25 people came."],
        ["no full stop at all"],
    ],
)
def test_english(sentences):
    assert [found.strip(" ") for found in split_sentences(" ".join(sentences))] == sentences


@pytest.mark.parametrize(
    "sentences",
    [
        ["안녕하세요.", "저는 학생입니다.", "만나서 반가워요!"],
        ["정말 갔습니까?", "네, 갔죠.", "그래요?"],
        ['그는 "나는 갔다."고 말했다.', "모두 놀랐다."],
        ['"정말?" 하고 물었다.', '"네." 라고 답했다.', "끝."],
        ["2020. 3. 5. 서울에서 열렸다.", "비가 왔다."],
        ["값은 3.5배 올랐다.", "한국(韓國)은 넓다."],
        ["그런데... 나는 몰랐다.", "알았다면 갔다...", "그리고 왔다."],
        ["마침표가 없는 문장이다", "\n다음 줄이다"],
        ["제1.2절을 보라.", "Dr. Kim은 U.S. Army에 있었다."],
    ],
)
def test_korean(sentences):
    assert [found.strip(" ") for found in split_sentences(" ".join(sentences))] == sentences


@pytest.mark.parametrize(
    "sentences",
    [
        ["彼は行った。", "「本当？」と聞いた。", "終わり！", "次"],
        ["我来了。", "你呢？", "“好！”", "他走了"],
    ],
)
def test_marks_without_a_space_behind_them(sentences):
    assert split_sentences("".join(sentences)) == sentences


def test_white_space_belongs_to_the_sentence_behind_it():
    assert split_sentences("  \n Ah. \n\n Oh.\tYes. \n ") == ["  \n Ah.", " \n\n Oh.", "\tYes. \n "]
    assert split_sentences("a\n.\nb") == ["a", "\n.", "\nb"]
    assert split_sentences("Mr.\nSmith") == ["Mr.", "\nSmith"]


@pytest.mark.parametrize("text", ["", " ", "\n\n \t"])
def test_white_space_alone_has_no_sentences(text):
    assert split_sentences(text) == []


def test_random_text_joins_to_itself():
    draw = random.Random(1)
    parts = [*" \n\t.!?…。！」)\"'", "\r\n", "...", "Mr.", "U.S.", "e.g.", "No. 5", "A", "b", "다.", "3.14", "1.", "I"]
    for _ in range(3000):
        text = "".join(draw.choices(parts, k=draw.randint(1, 30)))
        sentences = split_sentences(text)
        if text.strip():
            assert "".join(sentences) == text
        assert all(sentence.strip() for sentence in sentences)
        assert all("\n" not in sentence.strip() for sentence in sentences)


@pytest.mark.parametrize("text", ["." * 300_000 + "x", "12. " * 300_000 + "12"])
def test_long_runs_of_marks_and_of_numbers_take_no_quadratic_time(text):
    assert split_sentences(text) == [text]
