#!/usr/bin/env python3
"""Pictures of a metrics page as people see it: python3 page_shots.py http://127.0.0.1:9471/ FOLDER

Writes FOLDER/WIDTH-THEME.png for each width and theme, and says how much the page is wider than the
window (0 is right) and what the console said. To be looked at after a change of metrics/page.
"""

import argparse
import os
import tempfile
import time

import browser

HEIGHTS = {380: 1800, 1280: 2400, 3840: 2160}


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("folder")
    parser.add_argument("--width", type=int, action="append", help=f"default: {', '.join(map(str, HEIGHTS))}")
    parser.add_argument("--height", type=int, help="default: one that fits the width")
    parser.add_argument("--theme", choices=("light", "dark"), action="append", help="default: both")
    parser.add_argument("--window", choices=("300", "900", "3600"), help="seconds that charts show")
    options = parser.parse_args()
    if not browser.find():
        parser.error("no chromium: ci/setup.sh test installs it")
    os.makedirs(options.folder, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="remora-page.") as folder:
        pages = browser.Browser(folder)
        try:
            for width in options.width or HEIGHTS:
                for theme in options.theme or ("light", "dark"):
                    shoot(browser.Page(pages), options, width, theme)
        finally:
            pages.close()


def shoot(page, options, width, theme):
    page.size(width, options.height or HEIGHTS.get(width, 1600), mobile=width < 500)
    page.prefer(prefers_color_scheme=theme)
    page.open(options.url)
    page.wait("document.querySelectorAll('.panel canvas').length > 0")
    if options.window:
        page.run(f"document.querySelector('[data-window=\"{options.window}\"]').click()")
    time.sleep(3)
    path = os.path.join(options.folder, f"{width}-{theme}.png")
    page.screenshot(path, whole=False)
    beside = page.run("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    print(f"{path}: {beside} px beside the page; {'; '.join(page.faults()) or 'no complaints'}")
    page.close()


if __name__ == "__main__":
    main()
