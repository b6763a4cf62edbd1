import pytest

from hornbook.data.cleaning import clean_wiki


@pytest.mark.parametrize(
    ("text", "cleaned", "kind"),
    [
        ("== Life ==\nShe wrote.", "She wrote.", "heading"),
        ("Section::::Life.\nShe wrote.", "She wrote.", "heading"),
        ("* item\n# numbered\n- dashed\n• dotted\nShe wrote.", "She wrote.", "list_item"),
        ("BULLET::::- item\nShe wrote.", "She wrote.", "list_item"),
        ("{| class=x\n|-\n| cell || cell\n! head !! head\n|}\nShe wrote.", "She wrote.", "table_row"),
        ("| cell | cell |\nShe wrote.", "She wrote.", "table_row"),
        ("She was [[poet|a poet]] of [[Rome]].", "She was a poet of Rome.", "link"),
        ("She wrote.[12][citation needed][note 3]", "She wrote.", "reference_marker"),
        ("She wrote.<ref name=a>Page 3</ref><ref name=b/>", "She wrote.", "reference"),
        ("She wrote.<ref>See <i>page</i> 3</ref> He <ref name=b/>read.", "She wrote. He read.", "reference"),
        ("<gallery mode=packed>\nFile:a.png|One<br/>\n</gallery>She wrote.", "She wrote.", "gallery"),
        ("She {{lang|de|{{x}}}}wrote.", "She wrote.", "template"),
        ("[[File:a.png|thumb]]She wrote.", "She wrote.", "file_link"),
        ("[[파일:a.png|A [[poet|great poet]] [http://a.org]]]She [[File:b.png]]wrote.", "She wrote.", "file_link"),
        ("See [http://a.org/b her page].", "See her page.", "external_link"),
        ("'''She''' ''wrote''.", "She wrote.", "emphasis"),
        ("She<br/> <small>wrote</small>.", "She wrote.", "tag"),
        ("She]] wrote.", "She wrote.", "bracket_remains"),
        ("She<!-- was\nthat so? --> wrote.", "She wrote.", "comment"),
        ("__NOTOC__She wrote.", "She wrote.", "magic_word"),
        ("Salt &amp; pepper&nbsp;pots.", "Salt & pepper pots.", "entity"),
    ],
)
def test_each_kind_is_removed_and_counted(text, cleaned, kind):
    found, counts = clean_wiki(text)
    assert found == cleaned
    assert counts[kind] >= 1


@pytest.mark.parametrize(
    "text",
    [
        "She wrote. He read!\nAnd 3 < 4, so a = b = c.",
        '"Why?" she asked; it was -3 degrees: cold.',
        "The array a[i] holds it's 'own' [sic] words.",
        "¡Hola! ¿Qué tal?",
    ],
)
def test_prose_is_left_alone(text):
    assert clean_wiki(text) == (text, {})


def test_unclosed_markup_takes_no_long_time():
    import time

    started = time.perf_counter()
    clean_wiki("{{ [[ <ref> <!-- {| " * 20_000)
    clean_wiki("<!-- " * 20_000 + "-->")
    clean_wiki("[[File:a|[[b]] " * 20_000 + "<gallery> <ref>a<b> " * 20_000)
    clean_wiki("[[File:" + "[[b]] " * 200_000 + "<gallery><ref>" + "<b> " * 200_000)
    assert time.perf_counter() - started < 5
