"""The look of a report: one style sheet, light and dark, that touches nothing outside of the report."""

STYLE = """
.redfuser{--bg:#fff;--fg:#1c2024;--muted:#5a6472;--line:#d5dae1;--card:#f5f7f9;--accent:#0b5cad;
--good:#14713a;--bad:#b3261e;--warn:#8a5a00;--in:#e3edf8;--producer:#eef0f3;--reduction:#e2f3e8;--out:#f6ebf7;
--comment:#5a6472;--string:#8a5a00;--number:#7a3e9d;--keyword:#0b5cad;--type:#14713a;--macro:#a1440b;
color-scheme:light dark;background:var(--bg);color:var(--fg);
font:16px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif;overflow-wrap:break-word}
@media (prefers-color-scheme:dark){.redfuser{--bg:#14171a;--fg:#e3e6ea;--muted:#a0a9b5;--line:#3a424c;--card:#1d2227;
--accent:#7ab7f5;--good:#6fce92;--bad:#ff9a90;--warn:#e6b85c;--in:#1b3350;--producer:#2a3037;--reduction:#17402a;
--out:#432a47;--comment:#a0a9b5;--string:#e6b85c;--number:#cfa5ec;--keyword:#7ab7f5;--type:#6fce92;--macro:#f2a877}}
body.redfuser{margin:0}
.redfuser main,div.redfuser{max-width:64rem;margin:0 auto;padding:1rem}
.redfuser h1{font-size:1.7rem;line-height:1.25;margin:.5rem 0}
.redfuser h2{font-size:1.3rem;margin:2.2rem 0 .6rem;padding-top:.6rem;border-top:1px solid var(--line)}
.redfuser h3{font-size:1.05rem;margin:1.5rem 0 .4rem}
.redfuser p{margin:.4rem 0}
.redfuser a{color:var(--accent)}
.redfuser :focus-visible{outline:2px solid var(--accent);outline-offset:2px}
.redfuser .lead{color:var(--muted)}
.redfuser .badge{font-weight:700;font-size:.85rem;border:1.5px solid currentColor;border-radius:.4rem;
padding:.1rem .5rem;vertical-align:.15em}
.redfuser .good{color:var(--good)}.redfuser .bad{color:var(--bad)}.redfuser .warn{color:var(--warn)}
.redfuser nav ul{display:flex;flex-wrap:wrap;gap:.2rem 1.2rem;list-style:none;padding:0;margin:.6rem 0}
.redfuser dl{display:grid;grid-template-columns:minmax(6rem,max-content) minmax(0,1fr);gap:.35rem 1rem;margin:.4rem 0}
.redfuser dt{color:var(--muted)}.redfuser dd{margin:0;min-width:0}
.redfuser .scroll{overflow-x:auto;max-width:100%;margin:.4rem 0}
.redfuser .equations{border-collapse:collapse}
.redfuser .equations th{text-align:left;font-weight:400;color:var(--muted);padding:.3rem 1rem .3rem 0;
vertical-align:middle;white-space:nowrap}
.redfuser .equations td{padding:.3rem 0;white-space:nowrap}
.redfuser math{font-size:1.08em}
.redfuser table{border-collapse:collapse;font-size:.92rem}
.redfuser thead th{text-align:left;border-bottom:1.5px solid var(--line);padding:.25rem .9rem .25rem 0}
.redfuser tbody td{border-bottom:1px solid var(--line);padding:.25rem .9rem .25rem 0;vertical-align:top}
.redfuser .equations td,.redfuser .equations th{border:0}
.redfuser .number{text-align:right;font-variant-numeric:tabular-nums}
.redfuser code,.redfuser pre{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace}
.redfuser code{font-size:.9em}
.redfuser pre{background:var(--card);border:1px solid var(--line);border-radius:.4rem;padding:.7rem;margin:.4rem 0;
font-size:.82rem;line-height:1.45;overflow:auto;max-height:36rem;overflow-wrap:normal}
.redfuser details{border:1px solid var(--line);border-radius:.4rem;margin:.5rem 0;padding:0 .8rem}
.redfuser details[open]{padding-bottom:.5rem}
.redfuser summary{cursor:pointer;padding:.45rem 0}
.redfuser .refusal{border-left:4px solid var(--bad);background:var(--card);padding:.3rem .9rem;margin:.6rem 0;
border-radius:0 .4rem .4rem 0}
.redfuser svg{display:block;font-family:system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
.redfuser svg text{fill:var(--fg);font-size:12px}
.redfuser svg .small{fill:var(--muted);font-size:11px}
.redfuser svg .formula{font-family:ui-monospace,Menlo,Consolas,"DejaVu Sans Mono",monospace;font-size:11px}
.redfuser svg .name{font-weight:700;font-size:13px}
.redfuser svg .box{stroke:var(--muted);stroke-width:1}
.redfuser svg .input{fill:var(--in)}.redfuser svg .producer{fill:var(--producer)}
.redfuser svg .reduction{fill:var(--reduction);stroke-width:1.6}.redfuser svg .output{fill:var(--out)}
.redfuser svg .refused{stroke:var(--bad);stroke-width:2.4;stroke-dasharray:6 3}
.redfuser svg .edge{fill:none;stroke:var(--muted);stroke-width:1.3}
.redfuser svg .head{fill:var(--muted)}
.redfuser svg .frame{fill:none;stroke:var(--muted)}.redfuser svg .grid{stroke:var(--line)}
.redfuser svg .line{fill:none;stroke:var(--accent);stroke-width:2}
.redfuser svg .line.other{stroke:var(--warn);stroke-dasharray:7 4}
.redfuser svg .line.third{stroke:var(--good);stroke-dasharray:2 4}
.redfuser svg .dot{fill:var(--accent);stroke:var(--bg);stroke-width:1.5}
.redfuser svg .dot.hollow{fill:var(--bg);stroke:var(--muted)}
.redfuser .c{color:var(--comment);font-style:italic}.redfuser .s{color:var(--string)}.redfuser .m{color:var(--number)}
.redfuser .k{color:var(--keyword);font-weight:600}.redfuser .t{color:var(--type)}.redfuser .p{color:var(--macro)}
@media (max-width:36rem){.redfuser dl{grid-template-columns:1fr;gap:0}.redfuser dd{margin:0 0 .5rem}
.redfuser main,div.redfuser{padding:.7rem}}
@media print{.redfuser pre{max-height:none;white-space:pre-wrap}}
"""
