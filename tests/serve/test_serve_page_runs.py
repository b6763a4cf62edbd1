"""The runs on the page, in a real browser."""

import json

from served_page import served, written_run

from hornbook.serve.api import ServeSettings


def test_curves_of_runs(browser, folders, tmp_path):
    first = folders["first"]
    written_run(tmp_path / "one", first, [8, 7, 6], mlm=1, nsp=1)
    written_run(tmp_path / "two", first, [9, 8], mlm=1, nsp=1)
    written_run(tmp_path / "three", first, [50, 40, 30, 20], mlm=1, rtd=1)
    (tmp_path / "one" / "samples.json").write_bytes((first / "samples.json").read_bytes())
    samples = json.loads((first / "samples.json").read_text(encoding="utf-8"))
    for address in served([first], ServeSettings(runs=tmp_path)):
        page = browser.new_page(locale="en-GB")
        page.goto(f"{address}/#curves")
        line = page.wait_for_selector("svg.curve .line")
        assert line.evaluate("line => getComputedStyle(line).stroke").startswith("rgb(")
        charts = {
            each.query_selector("h3").inner_text(): [
                len(line.get_attribute("points").split()) for line in each.query_selector_all(".line")
            ]
            for each in page.query_selector_all("section")
        }
        assert {name: sorted(lines) for name, lines in charts.items()} == {
            "loss: mlm + nsp": [2, 3],
            "loss: mlm + rtd": [4],
        }
        (chart,) = (each for each in page.query_selector_all("section") if "nsp" in each.inner_text())
        texts = [each.text_content() for each in chart.query_selector_all("text")]
        assert [each for each in texts if each.isdigit()] == ["0", "1", "2", "3"], "each step once, where it is"
        headings = [each.inner_text() for each in page.query_selector_all("table.runs th")]
        assert headings == ["run", "what", "state", "step"]  # no run has a result or a speed
        assert "bert-tiny" in page.inner_text("table.runs")
        page.click("summary")
        assert (
            "[MASK]".join(each for each in samples[0]["text"].split("[MASK]")).replace("[MASK]", samples[0]["answer"])
            == page.locator("table.samples td").first.text_content()
        )
        guesses = page.query_selector_all("table.samples tr:first-child .cell")
        assert [each.inner_text().split("\n")[0] for each in guesses] == [
            each["token"] for each in samples[0]["guesses"]
        ]
        page.focus("[id='tick-three']")
        page.keyboard.press("Space")
        assert page.evaluate("document.activeElement.id") == "tick-three"
        assert [each.inner_text() for each in page.query_selector_all("section h3")] == ["loss: mlm + nsp"]
        assert page.is_visible("table.samples")  # stays open
        for name in ("one", "two"):
            page.click(f"[id='tick-{name}']")
        assert "No run is ticked" in page.inner_text("#result p")
        assert not page.query_selector("#result h3") and page.is_visible("table.runs")
        page.click("#language")
        page.wait_for_selector("#result p:has-text('선택한 실행이 없습니다')")
        assert page.inner_text("table.runs th >> nth=2") == "상태" and "완료" in page.inner_text("table.runs")
        page.close()


def test_steps_and_speed_stay_in_view_beside_long_descriptions(browser, folders, tmp_path):
    run = written_run(tmp_path / "one", folders["first"], [8, 7], mlm=1, tokens_per_second=1234)
    record = json.loads((run / "run.json").read_text(encoding="utf-8"))
    (run / "run.json").write_text(json.dumps(record | {"preset": "a model of many words " * 9}), encoding="utf-8")
    for address in served([folders["first"]], ServeSettings(runs=tmp_path)):
        page = browser.new_page(locale="en-GB", viewport={"width": 1000, "height": 700})
        page.goto(f"{address}/#curves")
        table = page.wait_for_selector("table.runs")
        assert table.inner_text().endswith("2\u00a0/\u00a03\t1,234")
        assert table.evaluate("table => table.parentElement.scrollWidth <= table.parentElement.clientWidth")
        page.close()


def test_a_folder_without_runs(browser, folders, tmp_path):
    for address in served([folders["first"]], ServeSettings(runs=tmp_path)):
        page = browser.new_page(locale="en-GB")
        page.goto(f"{address}/#curves")
        page.wait_for_selector("text=There are no runs yet.")
        assert not page.query_selector("#result table") and not page.query_selector("#result h3")
        page.close()
