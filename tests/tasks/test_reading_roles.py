"""Which column of a table is the text, its pair and the label."""

import pytest

from hornbook.tasks.reading.read import read

WORDS = ("the printer is out of paper", "I cannot log in", "my invoice is wrong", "a new laptop, please", "it crashed")


def tickets(num=60, **columns):
    """Rows of tickets; each of `columns` is made from the number of its row."""
    rows = [
        {"ID": 1000 + n, "Ticket text": f"{WORDS[n % 5]} {n}", "Team": ("IT", "Sales", "HR")[n % 3]} for n in range(num)
    ]
    return [row | {name: value(n) for name, value in columns.items()} for n, row in enumerate(rows)]


def roles(rows, task="classification", **columns):
    return read(task, rows, **columns).roles


@pytest.mark.parametrize(
    "date",
    [
        lambda n: f"2024-03-{n % 28 + 1:02d}",
        lambda n: f"{n % 28 + 1}/3/2024",
        lambda n: f"{n % 28 + 1:02d}.03.2024 09:15",
        lambda n: f"2024-03-{n % 28 + 1:02d}T09:15:00Z",
        lambda n: f"March {n % 28 + 1}, 2024",
        lambda n: f"2024년 3월 {n % 28 + 1}일",
    ],
)
def test_a_date_is_never_the_label(date):
    rows = tickets(When=date)
    assert roles(rows) == {"text": "Ticket text", "label": "Team", "key": "ID"}
    without = [{name: value for name, value in row.items() if name != "Team"} for row in rows]
    with pytest.raises(
        ValueError, match=r"no column is clearly the label; name it with label= \(columns: ID, Ticket text, When"
    ):
        roles(without)


@pytest.mark.parametrize("name", ["Created", "created_at", "Due date", "label"])
def test_a_column_of_times_is_known_by_its_name_or_by_what_it_holds(name):
    rows = tickets(**{name: lambda n: f"2024-03-{n % 28 + 1:02d}"})
    assert roles(rows)["label"] == "Team"


def test_an_id_is_never_the_label():
    rows = tickets(customer_id=lambda n: n % 7, orderId=lambda n: f"A{n % 9}", label=lambda n: f"x{n}")
    assert roles(rows)["label"] == "Team"  # and `label` has another value on every row


def test_several_labels_may_stand_in_a_column_with_a_plural_name():
    rows = [{"text": f"{WORDS[n % 5]} {n}", "Topics": ("law|tax", "tax", "")[n % 3]} for n in range(20)]
    assert roles(rows, "multi-label") == {"text": "text", "label": "Topics"}


def test_tags_and_a_category_may_both_be_several_labels():
    rows = [
        {"message": f"{WORDS[n % 5]} {n}", "category": "ab"[n % 2], "tags": ("urgent|refund", "refund")[n % 2]}
        for n in range(60)
    ]
    assert roles(rows)["label"] == "category"
    with pytest.raises(ValueError, match=r"several columns could be the label \(category, tags\)"):
        roles(rows, "multi-label")


def test_several_candidates_for_the_label_are_refused():
    rows = tickets(Priority=lambda n: ("low", "high")[n % 2])
    with pytest.raises(
        ValueError, match=r"several columns could be the label \(Team, Priority\); name one, such as label='Team'"
    ):
        roles(rows)
    assert roles(rows, label="Priority")["label"] == "Priority"
    rows = tickets(Score=lambda n: n % 5)  # a name that often stands for something else
    with pytest.raises(ValueError, match=r"the label \(Score, Team\)"):
        roles(rows)
    rows = tickets(Category=lambda n: n % 5, Topic=lambda n: n % 4)
    with pytest.raises(ValueError, match=r"the label \(Category, Topic\)"):
        roles(rows)


def test_the_surest_name_wins():
    rows = tickets(Label=lambda n: n % 2, Score=lambda n: n % 5)
    assert roles(rows)["label"] == "Label"
    assert roles(tickets(Sentiment=lambda n: n % 2))["label"] == "Sentiment"


def test_several_candidates_for_the_text_are_refused():
    rows = tickets(Reply=lambda n: f"thank you for your message number {n}")
    with pytest.raises(ValueError, match=r"the text \(Ticket text, Reply\); name one, such as text='Ticket text'"):
        roles(rows)
    rows = [{"title": f"about {n}", "body": f"some more words {n}", "label": n % 2} for n in range(30)]
    with pytest.raises(ValueError, match=r"the text \(title, body\)"):
        roles(rows)
    assert roles(rows, text="body")["text"] == "body"
    rows = [{"comment": f"ok {n}", "Ticket text": f"{WORDS[n % 5]} {n}", "label": n % 2} for n in range(30)]
    with pytest.raises(ValueError, match=r"the text \(comment, Ticket text\)"):  # the longer one has no known name
        roles(rows)


def test_several_candidates_for_the_pair_are_refused():
    names = ("premise", "hypothesis", "question1", "question2")
    rows = [{**{name: f"{name} words {n}" for name in names}, "label": n % 2} for n in range(30)]
    with pytest.raises(ValueError, match=r"such as text='premise' and pair='hypothesis'"):
        roles(rows)


def test_a_short_column_is_not_mistaken_for_the_text():
    rows = tickets(Author=lambda n: f"Ann Lee{n}", Created=lambda n: f"3 March 20{n:02d}")
    assert roles(rows)["text"] == "Ticket text"


def test_a_label_is_found_in_a_file_that_is_sorted_by_it():
    rows = sorted(tickets(3000), key=lambda row: row["Team"])
    assert roles(rows)["label"] == "Team"


def test_roles_of_other_kinds_of_task():
    rows = [{"tokens": ["a", "b"], "ner_tags": ["O", "O"], "pos_tags": ["X", "Y"]} for _ in range(4)]
    with pytest.raises(ValueError, match=r"the label \(ner_tags, pos_tags\)"):
        roles(rows, "tagging")
    assert roles(rows, "tagging", label="pos_tags") == {"text": "tokens", "label": "pos_tags"}
    rows = [{"question": "who", "context": "Ada wrote", "answer": "Ada", "id": n} for n in range(4)]
    assert roles(rows, "spans") == {"text": "question", "pair": "context", "label": "answer", "key": "id"}
    rows = [{"text": f"words here {n}", "n": n, "weight": n / 7} for n in range(30)]
    assert roles(rows, "regression")["label"] == "weight"  # n numbers the rows
    rows = [{"text": f"words here {n}", "red": n % 2, "blue": n % 3 == 0} for n in range(30)]
    assert roles([row | {"blue": int(row["blue"])} for row in rows], "multi-label")["label"] == "red,blue"


def test_a_single_column_of_0_and_1_has_the_same_class_when_it_is_read_again():
    rows = [{"text": f"words here {n}", "red": n % 2} for n in range(30)]
    data = read("multi-label", rows, held_out=0)
    again = read("multi-label", {"dev": rows}, trained_columns=data.roles)
    assert data.labels == again.labels == ("red",) and again.splits["dev"] == data.splits["train"]


@pytest.mark.parametrize(
    ("task", "row"),
    [
        ("classification", {"text": "one two", "label": "a"}),
        ("tagging", {"words": ["one", "two"], "tags": ["O", "O"]}),
        ("spans", {"question": "who", "passage": "Ada wrote", "answer": "Ada"}),
        ("choice", {"context": "She", "ending0": "ran", "ending1": "sat", "label": 0}),
        ("similarity", {"text": "one", "pair": "two"}),
        ("entity-typing", {"text": "In [ENT] Oslo [ENT].", "labels": ["place"]}),
    ],
)
@pytest.mark.parametrize("name", ["uid", "QID", "annot_id"])
def test_every_kind_of_task_knows_the_same_names_of_keys(task, row, name):
    examples = read(task, [row | {name: f"k{n}"} for n in range(4)], held_out=0).splits["train"]
    assert [each.key for each in examples] == ["k0", "k1", "k2", "k3"]


@pytest.mark.parametrize("task", ["classification", "regression", "spans", "similarity"])
@pytest.mark.parametrize(("role", "other"), [("text", "label"), ("text", "pair"), ("pair", "label")])
def test_one_column_in_two_roles_is_refused(task, role, other):
    rows = [{"question": "who", "passage": f"Ada {n}", "answer": "Ada", "score": n} for n in range(8)]
    with pytest.raises(ValueError, match=f"{role}= and {other}= both name the column 'passage'"):
        read(task, rows, **{role: "passage", other: "passage"})


def test_several_columns_of_0_and_1_suggest_several_labels():
    rows = [{"text": f"words here {n}", "red": n % 2, "blue": int(n % 3 == 0)} for n in range(30)]
    with pytest.raises(ValueError, match=r"\(red, blue\); name one.*, or give task='multi-label' to predict all"):
        roles(rows)
    with pytest.raises(ValueError, match=r"such as label='red'$"):
        roles([row | {"size": "SML"[n % 3]} for n, row in enumerate(rows)])


@pytest.mark.parametrize("price", ["-964,00 €", "$1,250", "EUR 12.50", "80 %"])
def test_numbers_that_cannot_be_read_are_named(price):
    rows = tickets(price=lambda n: price)
    with pytest.raises(
        ValueError, match=r"column 'price' has '.*, which cannot be read as a number; write numbers such"
    ):
        roles(rows, "regression")
    with pytest.raises(ValueError, match=r"column 'price': '.*' is not a number\): write numbers such as 1234.5"):
        roles(rows, "regression", label="price")


def test_decimal_commas_are_read_unless_they_may_separate_thousands():
    rows = tickets(price=lambda n: f"{n % 9 - 4},{n % 4}5" if n % 5 else "3")
    data = read("regression", rows, held_out=0)
    assert data.roles["label"] == "price" and [each.label for each in data.splits["train"][:3]] == [3.0, -3.15, -2.25]
    assert any("with decimal commas" in message for message in data.messages)
    assert read("regression", {"dev": rows[1:2]}, trained_columns=data.roles).splits["dev"][0].label == -3.15
    with pytest.raises(ValueError, match="column 'price' has '1,250'"):
        roles(tickets(price=lambda n: "1,250" if n % 2 else "900"), "regression")


def test_a_missing_column_is_named_by_its_content():
    rows = [{"review": f"words {n}", "sentiment": n % 2} for n in range(8)]
    for task, content, option in (
        ("spans", "question", "text"),
        ("tagging", "words", "text"),
        ("choice", "context", "text"),
    ):
        with pytest.raises(ValueError, match=f"no column for the {content} .*; name it with {option}="):
            roles(rows, task)
