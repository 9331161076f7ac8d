"""What the proofs of all pages have in common: how they are called, what hostile text is, and what is checked by axe-core."""

import pathlib
import sys

PROGRAM, BASE_URL, AXE, SHOTS = sys.argv[1:5]
HOSTILE = "</script><script>window.hurt = 1</script><img src=x onerror='window.hurt = 2'>\u2028`${1}`'\\"
# Width, height, and whether it is a phone.
SIZES = [(1400, 900, False), (390, 844, True)]


def check(holds, what):
    if not holds:
        sys.exit(f"FAILED: {what}")
    print(f"  {what}")


def axe(browser, where):
    browser.run(pathlib.Path(AXE).read_text() + "; 0")
    found = browser.run(
        "axe.run(document, { resultTypes: ['violations'] }).then((r) => r.violations"
        ".filter((v) => ['serious', 'critical'].includes(v.impact))"
        ".map((v) => `${v.id}: ${v.nodes.map((n) => n.target.join(' ') + ' ' + n.failureSummary).join(' | ')}`))"
    )
    check(not found, f"{where}: axe finds nothing serious {found}")
