"""The frame and the looks of a report's page, which needs nothing from elsewhere."""

from __future__ import annotations

CELL = "vertical-align:top;padding:3px 16px 3px 0"
LEFT = f"{CELL};text-align:left"
RIGHT = f"{CELL};text-align:right;font-variant-numeric:tabular-nums"
BREAK = "overflow-wrap:anywhere"

STYLE = """
:root { color-scheme: light dark; }
body { margin: 0; font: 16px/1.5 system-ui, sans-serif; }
main { max-width: 68rem; margin: 0 auto; padding: 1.5rem; }
h1 { font-size: 1.5rem; line-height: 1.25; }
h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
.opening { border-left: 4px solid #0072b2; padding: .25rem 0 .25rem 1rem; max-width: 44rem; }
details { margin: 1rem 0; }
summary { cursor: pointer; }
table { border-collapse: collapse; }
th, td { border-bottom: 1px solid #8886; }
figure { margin: 2rem 0; padding: .5rem; background: #fff; border-radius: 4px;
  overflow-x: auto; }
figure svg { display: block; width: 100%; min-width: 44rem; height: auto; }
@media print {
  main { max-width: none; padding: 0; }
  body { font-size: 10pt; }
  tr, figure { break-inside: avoid; }
  figure svg { min-width: 0; }
}
"""

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<main>
{body}
</main>
</body>
</html>
"""
