"""The page in a real browser, where there is one: Chromium, and the package playwright."""

import re

import pytest
from served_page import run, served, tabs, written_run

import hornbook as library
from hornbook.serve.api import ServeSettings
from hornbook.serve.middleware import PAGE_FILES
from hornbook.serve.server import PAGE
from hornbook.show.parameters import show_parameters

# Runs the panel, and changes the language when the first text arrives: the text on the button, the length of the text.
CHANGE_LANGUAGE_AT_FIRST_TEXT = """() => new Promise(resolve => {
  const [run, language, result] = ["#run", "#language", "#result"].map(name => document.querySelector(name));
  new MutationObserver((changes, observer) => {
    const written = result.querySelector(".written span:nth-child(2)");
    if (!written?.textContent) return;
    observer.disconnect();
    const length = written.textContent.length;
    language.click();  // draws a new panel
    resolve([document.querySelector("#run").innerText, length]);
  }).observe(result, {childList: true, subtree: true, characterData: true});
  run.click();
})"""


def test_the_page_is_complete_and_loads_nothing_else():
    assert sorted(path.name for path in PAGE.iterdir()) == sorted(PAGE_FILES.values())
    for path in PAGE.iterdir():
        text = path.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?://|@import|url\(", text), path


def test_both_languages_have_the_same_words():
    text = (PAGE / "words.js").read_text(encoding="utf-8")
    english, korean = text.split("\n  ko: {")
    names = [
        set(re.findall(r'(?:^|[{,])\s*"?([a-z_-]+)"?: (?=["\[{])', part, re.M | re.I)) for part in (english, korean)
    ]
    assert names[0] - {"en"} == names[1] and len(names[1]) > 50
    for part in (english, korean):
        named = re.findall(r'(?:^|[{,]\s*)"?([a-z_-]+)"?: ["\[]', part[: part.index("examples: {")], re.M | re.I)
        assert len(named) == len(set(named))
    code = "".join(path.read_text(encoding="utf-8") for path in PAGE.glob("*.js"))
    assert set(re.findall(r'(?:word|translated)\("([\w-]+)"\)', code)) <= names[1]


@pytest.fixture(scope="module")
def address(folders):
    yield from served(list(folders.values()), ServeSettings())


@pytest.fixture
def page(browser, address):
    context = browser.new_context(locale="en-GB", color_scheme="light")
    page = context.new_page()
    page.set_default_timeout(10_000)
    errors = []
    page.on("pageerror", lambda error: errors.append(error))
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.goto(address)
    page.wait_for_selector("#run")
    yield page
    context.close()
    assert not errors


def test_panels_follow_what_the_models_can_do(page, browser, folders):
    found = ["fill-mask", "next-sentence", "classify", "choice", "answer", "tag", "similar", "generate"]
    assert tabs(page) == [*found, "tokens", "masking", "attention", "forms", "parameters"]
    for address in served([folders["gpt"]], ServeSettings()):
        other = browser.new_page()
        other.goto(address)
        other.wait_for_selector("#run")
        assert tabs(other) == ["generate", "tokens", "attention", "forms", "parameters"]
        other.close()


def test_masks_are_filled_in_and_a_click_puts_a_word_in(page, folders):
    page.fill("#fill-mask", "the [MASK] of the [MASK]")
    page.click("#run")
    page.wait_for_selector(".bars")
    best = [guesses[0].word for guesses in library.load(folders["first"]).fill_mask("the [MASK] of the [MASK]")]
    assert [each.inner_text() for each in page.query_selector_all("mark")] == best
    names = page.query_selector_all(".bars")[1].query_selector_all(".name")
    chosen = names[2].inner_text()
    names[2].click()
    assert page.input_value("#fill-mask") == f"the [MASK] of the {chosen}"


def test_a_task_of_each_kind(page, folders):
    run(page, "classify", classify="a lantern")
    expected = library.load_predictor(folders["texts"]).predict("a lantern")[0]
    assert page.inner_text(".bars .best .name") == expected.label
    run(page, "tag", tag="the silver bridge")
    tags = library.load_predictor(folders["tags"]).predict("the silver bridge")[0].tags
    assert len(page.query_selector_all(".tagged")) == 3
    assert len(page.query_selector_all(".tagged.hue")) == sum(tag != "O" for tag in tags)
    run(page, "answer", question="the garden", passage="the river and a bridge")
    answer = library.load_predictor(folders["answers"]).predict([("the garden", "the river and a bridge")])[0].answer
    if answer:
        assert page.inner_text("mark") == answer
    else:
        assert page.inner_text("#result .error") == "No answer in this passage"
    page.click("summary")
    page.wait_for_selector("details table")
    page.click("#tab-classify")
    page.select_option("#model", "numbers")
    page.fill("#pair", "bread")
    page.click("#run")
    expected = library.load_predictor(folders["numbers"]).predict([("a lantern", "bread")])[0]
    assert page.wait_for_selector(".number").inner_text() == f"{expected:.3f}"
    run(page, "choice", context="the river", options="a garden\nbread")
    assert len(page.query_selector_all(".bars li")) == 2
    run(page, "next-sentence", first="the river", second="a garden")
    assert len(page.query_selector_all(".bars li")) == 2
    run(page, "similar", similar="the river\na bridge\nthe river")
    assert page.inner_text(".bars .best .name") == "the river"


def test_words_of_an_entity_have_its_type_in_any_scheme(page):
    words, tags = ["Ada", "King", "in", "London", "UN"], ["B-PER", "L-PER", "O", "U-LOC", "S-ORG"]
    page.route("**/tag", lambda route: route.fulfill(json={"model": "tags", "words": words, "tags": tags}))
    run(page, "tag")
    assert [each.inner_text() for each in page.query_selector_all(".tagged small")] == ["PER", "PER", "LOC", "ORG"]


def test_text_is_written_as_it_comes_and_can_be_stopped(page, folders):
    page.click("#tab-generate")
    page.fill("#prompt", "the river")
    page.fill("#seed", "7")
    page.locator("#max_tokens").evaluate("box => { box.value = 16; box.dispatchEvent(new Event('input')); }")
    page.click("#run")
    page.wait_for_selector("#result p:not(:empty)")
    settings = {"temperature": 0.8, "top_p": 0.95, "repetition_penalty": 1.1, "seed": 7}
    expected = library.load(folders["gpt"]).generate("the river", 16, **settings)[0].text
    assert page.locator(".written").evaluate("box => box.textContent") == "the river" + expected
    page.locator("#max_tokens").evaluate("box => { box.value = 1024; box.dispatchEvent(new Event('input')); }")
    page.locator(".written").evaluate("box => box.id = 'first'")
    page.click("#run")
    page.wait_for_selector(".written:not(#first) span:nth-child(2):not(:empty)")
    page.keyboard.press("Escape")
    page.wait_for_selector("#run:text('Run')")
    assert 0 < page.locator(".written span:nth-child(2)").evaluate("box => box.textContent.length") < 4096


def test_examples_before_a_prompt(page, folders):
    page.click("#tab-generate")
    assert not page.is_visible("#whole")
    for source, target in (("bread", "garden"), ("", ""), ("river", "harbour"), ("letters", "windows")):
        page.click("#add")  # the first field of the new row has the focus
        page.keyboard.type(source)
        page.keyboard.press("Tab")
        page.keyboard.type(target)
    page.fill("#prompt", "bridge")
    page.click("[aria-label='Remove the example 3']")
    expected = "bread => garden\nletters => windows\nbridge =>"  # the empty row is left out
    assert page.text_content("#whole") == expected and len(page.query_selector_all(".shot")) == 3
    page.fill("#seed", "3")
    page.locator("#max_tokens").evaluate("box => { box.value = 24; box.dispatchEvent(new Event('input')); }")
    page.click("#run")
    page.wait_for_selector("#result p:not(:empty)")
    settings = {"temperature": 0.8, "top_p": 0.95, "repetition_penalty": 1.1, "seed": 3, "stop_strings": ("\n",)}
    text = library.load(folders["gpt"]).generate(expected, 24, **settings)[0].text
    written = page.text_content(".written")
    assert written == expected + text if text else written.startswith(expected)
    page.click("#language")
    assert page.text_content("#whole") == expected and page.inner_text("#add") == "+ 예시 추가"
    page.fill("#sign", "=")
    page.locator(".shot textarea").nth(1).fill("두 줄\n입니다")
    assert page.text_content("#whole") == "bread = 두 줄\n입니다\n\nletters = windows\n\nbridge ="
    for _ in range(3):
        page.click(".shot button >> nth=0")
    assert not page.is_visible("#whole") and not page.is_visible("#sign")


def test_a_model_that_ends_at_once_is_said_to(page):
    stream = 'data: {"choices": [], "usage": {"completion_tokens": 0}}\n\ndata: [DONE]\n\n'
    page.route("**/v1/completions", lambda route: route.fulfill(body=stream, content_type="text/event-stream"))
    run(page, "generate", prompt="the river")
    assert page.wait_for_selector(".written em").inner_text().strip() == "The model wrote nothing: it ended at once."


def test_pictures(page):
    page.click("#tab-tokens")
    assert page.input_value("#model") == "gpt"  # most of the other vocabularies is Korean, and the page is in English
    for name in ("tokens", "attention", "forms"):
        page.click(f"#tab-{name}")
        page.select_option("#model", "first")
    run(page, "tokens", tokens="the river <b>")
    assert "[CLS]" in page.inner_text(".strip") and not page.query_selector("#result b")
    run(page, "masking", tokens="the river of bread")
    assert len(page.query_selector_all(".strip")) == 5
    run(page, "attention", tokens="the river of bread")
    assert len(page.query_selector_all(".grid td")) == 6 * 6
    page.select_option("#head", "1")
    assert "the darkest cell is" in page.inner_text("#result")
    run(page, "forms", premise="the river", hypothesis="bread")
    assert [each.inner_text() for each in page.query_selector_all(".strip:nth-child(2) .cell")][:1] == ["[CLS]"]
    num_forms = len(page.query_selector_all(".strip"))
    page.select_option("#model", "gpt")
    run(page, "forms")
    assert page.inner_text(".strip .cell") == "_start_" and len(page.query_selector_all(".strip")) == num_forms == 5


def test_parameters_are_shown_at_once_and_in_both_languages(page, folders):
    page.click("#tab-parameters")
    for name in ("first", "gpt"):
        page.select_option("#model", name)
        expected = show_parameters(folders[name]).tables
        total = page.wait_for_selector(f"table:last-child td.right:text-is('{expected[-1].rows[0][1]}')")
        assert total and not page.query_selector("#run")
        rows = [row.inner_text().split("\t") for row in page.query_selector_all("table >> nth=0 >> tbody tr")]
        assert rows == [list(row) for row in expected[0].rows]
    titles = [each.inner_text() for each in page.query_selector_all("#result h3")]
    assert titles == ["if the blocks shared"]
    page.click("#language")
    page.wait_for_selector("#result h3:text-is('블록이 파라미터를 함께 쓴다면')")


def test_replaced_words(browser, electra):
    model, text = library.load(electra), "the river of bread 🌉 and a bridge"
    for address in served([electra], ServeSettings()):
        page = browser.new_page(locale="en-GB")
        page.goto(address)
        page.wait_for_selector("#run")
        assert tabs(page)[:3] == ["fill-mask", "detect", "similar"]
        run(page, "detect", detect=text)
        judged = model.detect(text)
        marked = page.query_selector_all(".word")
        assert page.locator("#result .sentence").text_content() == text
        assert [each.inner_text() for each in marked] == [text[each.start : each.end] for each in judged]
        likeliest = max(judged, key=lambda each: each.probability)
        assert page.inner_text(".bars .best .name") == likeliest.word
        assert float(marked[judged.index(likeliest)].get_attribute("title").rstrip("%")) == pytest.approx(
            100 * likeliest.probability, abs=0.6
        )
        run(page, "replaced", tokens="the river of bread")
        labels = [each.inner_text() for each in page.query_selector_all(".picture div.small")]
        assert labels == [f"{copy}: {step}" for copy in (1, 2) for step in ("masked", "generated", "judged")]
        page.click("#language")
        page.wait_for_selector(".picture div.small:text-is('2: 판별')")
        page.close()


def test_paths_of_a_graph_behind_an_answer(browser, kagnet):
    question, choices = "They dug the ground to plant flowers. With what?", ["trowel", "excavator", "moon"]
    found = library.explain(kagnet, question, choices)
    for address in served([kagnet], ServeSettings()):
        page = browser.new_page(locale="en-GB")
        page.goto(address)
        page.wait_for_selector("#run")
        run(page, "explain", explain=question, choices="\n".join(choices))
        assert page.inner_text(".bars .best .name") == found.answer
        best = found.choices[found.choice]
        rows = page.query_selector_all("details[open] tbody tr")
        assert [row.query_selector("td").inner_text() for row in rows] == [str(each.path) for each in best.paths]
        concepts = {each.inner_html() for each in page.query_selector_all("details[open] svg .concept")}
        assert concepts == {name for each in best.paths[:10] for name in each.path.entities}
        relations = [each.inner_html() for each in page.query_selector_all("details[open] svg .relation")]
        assert any("UsedFor" in each for each in relations)
        for box in page.query_selector_all("details.explained:not([open]) summary"):
            box.click()
        shown = {each.inner_text().split(" ")[0] for each in page.query_selector_all("details.explained summary")}
        assert shown == set(choices)
        assert "no path between the question" in page.inner_text("#result")
        page.click("#language")
        assert page.inner_text("#tab-explain") == "근거 경로"
        headings = [each.inner_text() for each in page.query_selector("details[open] thead").query_selector_all("th")]
        assert headings == ["경로", "가중치"] and page.inner_text(".bars .best .name") == found.answer
        assert len(page.query_selector_all("details.explained[open]")) == len(choices)
        page.close()


def test_results_stay_when_the_language_changes(page):
    run(page, "next-sentence", first="the river", second="a garden")
    chances = [each.inner_text() for each in page.query_selector_all(".bars .value")]
    page.click("#theme")
    page.click("#language")
    assert page.inner_text("#run") == "실행" and page.input_value("#second") == "a garden"
    assert {each.inner_text() for each in page.query_selector_all(".bars .name")} == {"이어짐", "이어지지 않음"}
    assert [each.inner_text() for each in page.query_selector_all(".bars .value")] == chances
    run(page, "attention", tokens="the river of bread")
    page.select_option("#layer", "1")
    page.select_option("#head", "2")
    page.click("#language")
    page.wait_for_selector("#result :text('the darkest cell is')")
    assert len(page.query_selector_all(".grid td")) == 6 * 6
    assert page.input_value("#layer") == "1" and page.input_value("#head") == "2"
    page.click("#tab-tokens")
    page.wait_for_selector("#tab-tokens[aria-selected=true]")
    assert not page.query_selector("#result > *")


def test_a_text_is_written_on_while_the_language_changes(page):
    page.click("#tab-generate")
    page.locator("#max_tokens").evaluate("box => { box.value = 256; box.dispatchEvent(new Event('input')); }")
    run_button, num_written = page.evaluate(CHANGE_LANGUAGE_AT_FIRST_TEXT)
    assert run_button == "중지"
    page.wait_for_selector("#run:text('실행')")
    written = page.locator(".written span:nth-child(2)")
    assert len(written.text_content()) > num_written and written.is_visible()
    assert page.inner_text("#result p").endswith("초당 토큰")


def test_an_error_is_translated(browser, address):
    page = browser.new_page(locale="en-GB")
    page.goto(address)
    page.route("**/next-sentence", lambda route: route.abort())
    page.click("#tab-next-sentence")
    page.click("#run")
    assert page.wait_for_selector("[role=alert]").inner_text() == "The server cannot be reached."
    page.click("#language")
    assert page.inner_text("[role=alert]") == "서버에 연결할 수 없습니다."
    page.close()


def test_the_keyboard(page):
    page.focus("#tab-fill-mask")
    page.keyboard.press("ArrowDown")
    assert page.url.endswith("#next-sentence")
    page.wait_for_selector("#tab-next-sentence[aria-selected=true]")
    page.keyboard.press("End")
    page.wait_for_selector("#tab-parameters[aria-selected=true]")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowUp")
    page.wait_for_selector("#tab-attention[aria-selected=true]")
    page.focus("#tokens")
    page.keyboard.press("Control+Enter")
    page.wait_for_selector(".grid")


def test_korean_dark_and_a_phone(browser, address):
    context = browser.new_context(locale="ko-KR", color_scheme="dark", viewport={"width": 360, "height": 700})
    page = context.new_page()
    page.goto(address)
    page.wait_for_selector("#run")
    assert page.inner_text("#run") == "실행" and page.get_attribute("html", "lang") == "ko"
    assert page.get_attribute("html", "data-theme") == "dark"
    for name in tabs(page):
        page.click(f"#tab-{name}")
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, name
    run(page, "tokens", tokens="the river")
    assert page.inner_text("#result p").startswith("단어 2개가 토큰")
    assert page.inner_text("#result th") == "위치" and page.inner_text("#result .legend") == "특수 토큰"
    page.click("#language")
    page.click("#theme")
    page.reload()
    page.wait_for_selector("#run")
    assert page.inner_text("#run") == "Run" and page.get_attribute("html", "data-theme") == "light"
    context.close()


def test_a_phone_has_no_gap_no_keys_and_a_hint_at_hidden_tabs(browser, address):
    page = browser.new_page(locale="en-GB", viewport={"width": 420, "height": 1400})
    page.goto(address)
    page.wait_for_selector("#run")
    tabs_box, card = (page.locator(name).bounding_box() for name in ("#tabs", "main"))
    assert card["y"] - tabs_box["y"] - tabs_box["height"] < 20
    assert not page.is_visible(".keys") and page.is_visible("footer a")
    assert page.get_attribute("#tabs", "data-more") == "end"
    page.evaluate("document.getElementById('tabs').scrollLeft = 60")
    page.wait_for_selector("#tabs[data-more=both]")
    page.evaluate("document.getElementById('tabs').scrollLeft = 100000")
    page.wait_for_selector("#tabs[data-more=start]")
    page.set_viewport_size({"width": 1200, "height": 900})
    page.wait_for_selector("#tabs[data-more=none]")
    assert page.is_visible(".keys")
    page.close()


def test_a_refusal_and_a_key(browser, folders):
    for address in served([folders["first"]], ServeSettings(api_key="secret")):
        page = browser.new_page(locale="en-GB")
        page.goto(address)
        page.fill("#key-value", "secret")
        page.click("#key button")
        page.fill("#fill-mask", "no mask")
        page.click("#run")
        assert "the text has no mask" in page.wait_for_selector("[role=alert]").inner_text()
        page.close()


@pytest.mark.parametrize("locale", ["en-GB", "ko-KR"])
def test_every_panel_answers_with_the_texts_it_opens_with(browser, folders, electra, kagnet, tmp_path, locale):
    written_run(tmp_path / "one", folders["first"], [8, 7, 6], mlm=1)
    every = re.findall(r'^  \{ id: "([\w-]+)"', (PAGE / "panels.js").read_text(encoding="utf-8"), re.M)
    errors = []
    for address in served([*folders.values(), electra, kagnet], ServeSettings(runs=tmp_path)):
        page = browser.new_page(locale=locale)
        page.set_default_timeout(10_000)
        page.on("pageerror", lambda error: errors.append(error))
        page.goto(address)
        page.wait_for_selector("#run")
        assert tabs(page) == every
        for name in every:
            page.click(f"#tab-{name}")
            page.wait_for_selector(f"#tab-{name}[aria-selected=true]")
            if page.query_selector("#run"):
                page.focus("main form textarea")
                page.keyboard.press("Control+Enter")
            page.wait_for_selector("#result > *")
            page.wait_for_selector(f"#run:text-is('{'Run' if locale == 'en-GB' else '실행'}'), table.values")
            assert not page.query_selector("[role=alert]"), (name, page.inner_text("#result"))
            assert all(each.inner_text().strip() for each in page.query_selector_all("h2, #result h3")), name
        assert not errors
        page.close()
