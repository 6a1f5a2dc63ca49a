// What page_check.py asks of a page: one object, made in the page under test.
(() => {
  const shown = (element) =>
      element.checkVisibility({visibilityProperty: true}) && element.getClientRects().length > 0;

  // [red, green, blue, alpha] of a computed colour, from 0 to 1 but for alpha.
  const parse = (text) => {
    const parts = text.match(/[\d.]+/g).map(Number);
    const whole = text.startsWith('rgb') ? 255 : 1;
    return [parts[0] / whole, parts[1] / whole, parts[2] / whole, parts[3] ?? 1];
  };
  const over =
      (top, below) => [0, 1, 2].map((at) => top[at] * top[3] + below[at] * (1 - top[3])).concat(1);
  const background = (element) => {
    const layers = [];
    for (let at = element; at; at = at.parentElement)
      layers.push(parse(getComputedStyle(at).backgroundColor));
    return layers.reverse().reduce((below, top) => over(top, below), [1, 1, 1, 1]);
  };
  const luminance = (colour) => {
    const [r, g, b] =
        colour.map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const contrast = (element) => {
    const ground = background(element);
    const [high, low] = [
      luminance(over(parse(getComputedStyle(element).color), ground)), luminance(ground)
    ].sort((a, b) => b - a);
    return (high + 0.05) / (low + 0.05);
  };
  const hasText =
      (element) => [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());

  const focusable =
      () => [...document.querySelectorAll('a[href], button, input, summary, [tabindex="0"]')]
                .filter(shown);

  globalThis.check = {
    // Texts that are hard to read: below 4.5.
    pale() {
      const texts =
          [...document.body.querySelectorAll('*')].filter((one) => hasText(one) && shown(one));
      return {
        seen: texts.length,
        pale: texts.map((one) => [contrast(one), one.textContent.trim().slice(0, 40)])
                  .filter(([ratio]) => ratio < 4.5)
      };
    },
    controls: () => focusable().length,
    // Marks what has the focus; how many have had it. Null when it is not to be seen.
    reached() {
      const one = document.activeElement;
      if (one && one !== document.body) {
        one.dataset.reached = '1';
        if (getComputedStyle(one).outlineStyle === 'none') return null;
      }
      return focusable().filter((other) => other.dataset.reached).length;
    },
    missed: () =>
        focusable().filter((one) => !one.dataset.reached).map((one) => one.outerHTML.slice(0, 80)),
    // Cells of a table by row: [["cache", "16 MiB", ...], ...]
    rows: (id) => [...document.querySelectorAll(`#table-${id} tbody tr`)].map(
        (row) => [...row.children].filter((cell) => !cell.hidden).map((cell) => cell.textContent)),
    // {"read": {"now": "12 k/s", "since start": "123,456"}, ...} of a panel whose values are open
    values(id) {
      const panel = document.getElementById(`panel-${id}`);
      const heads = [...panel.querySelectorAll('thead th')].map((one) => one.textContent);
      return Object.fromEntries([...panel.querySelectorAll('tbody tr')].map(
          (row) => [row.children[0].textContent, Object.fromEntries([
            ...row.children
          ].slice(1).map((cell, at) => [heads[at + 1], cell.textContent]))]));
    },
    open() {
      for (const one of document.querySelectorAll('.panel details')) one.open = true;
    },
    columns: () =>
        getComputedStyle(document.querySelector('.grid')).gridTemplateColumns.split(' ').length,
    overflow: () => document.documentElement.scrollWidth - document.documentElement.clientWidth,
    // How many charts are wider than their boxes: for a moment, when these become narrower.
    wide: () => [...document.querySelectorAll('.box')]
                    .filter((box) => [...box.querySelectorAll('canvas')].some(
                                (one) => one.getBoundingClientRect().width >
                                    box.getBoundingClientRect().width + 1))
                    .length,
    sampled: () => Number(document.getElementById('sampled').dataset.sampledMs || 0),
    figure: (id) => document.querySelector(`[data-figure="${id}"] .value`)?.textContent ?? null,
    // How many points of a chart are not on its ground: whether something is drawn.
    inked(id) {
      const counts = [...document.querySelectorAll(`#panel-${id} canvas`)].map((one) => {
        if (!one.width || !one.height) return 0;
        const copy =
            new OffscreenCanvas(one.width, one.height).getContext('2d', {willReadFrequently: true});
        copy.drawImage(one, 0, 0);
        const {data} = copy.getImageData(0, 0, one.width, one.height);
        let count = 0;
        for (let at = 3; at < data.length; at += 4)
          if (data[at]) ++count;
        return count;
      });
      return Math.max(0, ...counts);
    },
    // Where a chart is, in the middle of the window: [x, y, width, height].
    place(id) {
      const box = document.querySelector(`#panel-${id} .box`);
      box.scrollIntoView({block: 'center'});
      const {x, y, width, height} = box.getBoundingClientRect();
      return [x, y, width, height];
    },
    theme: () => document.documentElement.dataset.theme,
    text: (id) => document.getElementById(id).textContent,
    hidden: (id) => document.getElementById(id).hidden,
  };
  return true;
})()
