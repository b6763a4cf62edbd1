"""The style sheet of the report pages, for light and dark, wide and narrow screens."""

CSS = """
:root {
  color-scheme: light dark;
  --paper: #f5f6f8; --card: #ffffff; --ink: #1f232b; --soft: #626a78; --line: #e1e4ea;
  --accent: #3566b8; --good: #1f7a57; --good-paper: #e2f3ec; --warm: #b4501f; --warm-paper: #fbeadf; --bar: #c9d8f1;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #121419; --card: #1b1e25; --ink: #dfe3ea; --soft: #98a1b0; --line: #2e333d;
    --accent: #7da7ee; --good: #6fd0a9; --good-paper: #17382c; --warm: #f0a077; --warm-paper: #3d2619; --bar: #31456b;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0; padding: 2rem 1rem 4rem; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif;
}
main { max-width: 1060px; margin: 0 auto; }
h1 { margin: 0; font-size: 1.8rem; line-height: 1.2; }
h2 { margin: 2.4rem 0 .8rem; font-size: 1.15rem; }
p { margin: .4rem 0; }
a { color: var(--accent); }
.soft { color: var(--soft); }
.small { font-size: .85rem; }
.badge { display: inline-block; padding: .1rem .7rem; border-radius: 1rem; font-size: .85rem; font-weight: 600; }
.finished { color: var(--good); background: var(--good-paper); }
.unfinished { color: var(--warm); background: var(--warm-paper); }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 1rem; overflow-x: auto; }
.tiles { display: grid; grid-template-columns: repeat(auto-fill, minmax(200px, 1fr)); gap: .8rem; margin-top: 1.4rem; }
.tile { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: .8rem 1rem; }
.tile .label { color: var(--soft); font-size: .85rem; }
.tile .value { font-size: 1.5rem; font-weight: 650; line-height: 1.3; font-variant-numeric: tabular-nums; }
.tile .note { color: var(--soft); font-size: .8rem; line-height: 1.35; overflow-wrap: anywhere; }
img { display: block; width: 100%; height: auto; }
table { border-collapse: collapse; width: 100%; }
th { text-align: left; color: var(--soft); font-size: .8rem; font-weight: 600; }
th, td { padding: .5rem .7rem .5rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
tr:last-child > td { border-bottom: 0; }
.amount { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
.path { overflow-wrap: anywhere; }
mark { background: var(--warm-paper); color: var(--warm); border-radius: 4px; padding: 0 .3rem; font-weight: 600; }
.guess { position: relative; display: flex; justify-content: space-between; gap: .8rem; min-width: 12rem;
  padding: 0 .5rem; margin-bottom: 2px; font-size: .85rem; }
.guess .bar { position: absolute; inset: 0 auto 0 0; background: var(--bar); border-radius: 4px; opacity: .75; }
.guess span { position: relative; }
.guess.hit { color: var(--good); font-weight: 650; }
.guess.hit .bar { background: var(--good-paper); opacity: 1; }
.warning { margin: 1.2rem 0 0; padding: .8rem 1rem; border-radius: 10px; color: var(--warm);
  background: var(--warm-paper); font-weight: 600; }
h3 { margin: 1.2rem 0 .4rem; font-size: .95rem; }
h3:first-child { margin-top: 0; }
.heat { width: auto; }
.heat th, .heat td { padding: .3rem .55rem; border: 2px solid var(--card); text-align: center;
  font-variant-numeric: tabular-nums; }
.heat th { overflow-wrap: anywhere; max-width: 11rem; }
.heat th[scope=row] { text-align: right; }
.heat td { background: color-mix(in srgb, var(--accent) calc(var(--share) * 60%), var(--paper)); }
.looks { width: auto; font-size: .72rem; line-height: 1.1; }
.looks th, .looks td { padding: 0; border: 1px solid var(--card); font-size: inherit; font-weight: 400; }
.looks th { color: var(--ink); white-space: nowrap; }
.looks th[scope=col] { writing-mode: vertical-rl; text-align: right; padding: .2rem 0; }
.looks th[scope=row] { text-align: right; padding: 0 .3rem; }
.looks td { width: 1.15rem; min-width: 1.15rem; height: 1.15rem;
  background: color-mix(in srgb, var(--accent) calc(var(--share) * 100%), var(--paper)); }
.wrong { color: var(--warm); font-size: .8rem; }
.picture { max-width: 760px; }
details { margin-bottom: .5rem; }
summary { cursor: pointer; font-weight: 600; }
code, pre { font-family: ui-monospace, "SF Mono", Menlo, Consolas, monospace; font-size: .85rem; }
pre { margin: .3rem 0 1rem; padding: .7rem .9rem; background: var(--paper); border: 1px solid var(--line);
  border-radius: 8px; white-space: pre-wrap; overflow-wrap: anywhere; }
ul { margin: 0; padding-left: 1.2rem; }
@media (max-width: 640px) {
  body { padding: 1.2rem .7rem 3rem; }
  h1 { font-size: 1.45rem; }
  .tiles { grid-template-columns: 1fr 1fr; gap: .5rem; }
  .tile { padding: .6rem .7rem; }
  .tile .value { font-size: 1.15rem; }
  .card { padding: .7rem; }
  .stacked thead { display: none; }
  .stacked, .stacked tbody, .stacked tr, .stacked td { display: block; width: 100%; }
  .stacked td { border: 0; padding: .15rem 0; text-align: left; white-space: normal; }
  .stacked tr { border-bottom: 1px solid var(--line); padding: .6rem 0; }
  .stacked tr:last-child { border-bottom: 0; }
  .stacked td[data-label]::before { content: attr(data-label) ": "; color: var(--soft); font-size: .85rem; }
}
"""
