// One chart: a panel on the page with its drawing, its legend and its table of values.

/* global Dygraph */
import {clock, exact, format, kNone, linearTicks, logTicks, timeTicks} from './format.js';

// Okabe and Ito's colours, which can be told apart with any kind of colour vision; on white their
// yellow and sky blue would be too pale. Dashes tell lines apart without any colour.
const kColours = {
  light: ['#0072b2', '#d55e00', '#00795a', '#a3497c', '#8a6100', '#333333', '#3b86b5', '#9a4400'],
  dark: ['#56b4e9', '#e69f00', '#2fc79b', '#e79dc4', '#f0e442', '#ffffff', '#8fa8ff', '#ff8a4c'],
};
const kDashes =
    [null, [7, 3], [2, 3], [9, 3, 2, 3], [14, 4], [5, 2, 2, 2, 2, 2], [3, 6], [12, 2, 4, 2]];
const kInk = {
  light: {grid: '#dfe3e8', axis: '#7a828c'},
  dark: {grid: '#333b46', axis: '#6d7682'}
};

const of = (list, at) => list[at % list.length];
export const colourOf = (theme, slot) => of(kColours[theme], slot);

export function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name === 'class')
      element.className = value;
    else if (name.includes('-') || name === 'role')
      element.setAttribute(name, value);
    else
      element[name] = value;
  }
  element.append(...children);
  return element;
}

export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

const kSvg = 'http://www.w3.org/2000/svg';
function swatch(colour, dash) {
  const picture = document.createElementNS(kSvg, 'svg');
  picture.setAttribute('class', 'swatch');
  picture.setAttribute('viewBox', '0 0 28 8');
  picture.setAttribute('aria-hidden', 'true');
  const line = document.createElementNS(kSvg, 'line');
  for (const [name, value] of Object.entries(
           {x1: 0, x2: 28, y1: 4, y2: 4, stroke: colour, 'stroke-width': 3})) {
    line.setAttribute(name, value);
  }
  if (dash) line.setAttribute('stroke-dasharray', dash.join(' '));
  picture.append(line);
  return picture;
}

const remPx = () => parseFloat(getComputedStyle(document.documentElement).fontSize);

export class Chart {
  // `host` is told what happens here: cursor(timeMs or null), zoom(fromMs, toMs), step(event).
  constructor(panel, host) {
    this.host = host;
    this.rows = [];
    this.visible = false;
    this.graph = null;
    this.element = make('section', {class: 'panel'});
    this.heading = make('h3');
    this.grow = make('button', {type: 'button', class: 'grow', 'aria-pressed': 'false'}, '⤢');
    this.note = make('p', {class: 'empty'});
    this.plot = make('div', {class: 'plot'});
    this.line = make('div', {class: 'cursor', hidden: true});
    this.box = make('div', {class: 'box', tabIndex: 0, role: 'img'}, this.plot, this.line);
    this.legend = make('ul', {class: 'legend'});
    this.help = make('p');
    this.body = make('tbody');
    this.table = make(
        'div', {class: 'scroll'},
        make(
            'table', {},
            make(
                'thead', {},
                make(
                    'tr', {},
                    ...['', 'now', 'mean', 'highest', 'since start'].map(
                        (name) => make('th', {scope: 'col'}, name)))),
            this.body));
    this.details = make('details', {}, make('summary', {}, 'Values'), this.help, this.table);
    this.element.append(
        make('div', {class: 'head'}, this.heading, this.grow), this.box, this.legend, this.note,
        this.details);
    this.#listen();
    this.define(panel);
  }

  #listen() {
    this.box.addEventListener('keydown', (event) => this.host.step(event));
    this.box.addEventListener('blur', () => this.host.cursor(null));
    this.grow.addEventListener('click', () => {
      const wide = this.element.classList.toggle('wide');
      this.grow.setAttribute('aria-pressed', String(wide));
      this.resize();
    });
    this.details.addEventListener('toggle', () => this.host.redraw(this));
    this.observer = new ResizeObserver(() => this.resize());
    this.observer.observe(this.box);
  }

  // The panel may be another one each time, with the same id.
  define(panel) {
    this.panel = panel;
    this.element.id = `panel-${panel.id}`;
    setText(this.heading, panel.title);
    this.grow.setAttribute('aria-label', `Enlarge ${panel.title}`);
    setText(this.help, panel.help ?? '');
    const empty = panel.lines.length === 0;
    if (empty) setText(this.note, panel.empty ?? '');
    if (empty || !panel.alarm) this.note.hidden = !empty;
    this.box.hidden = this.legend.hidden = this.details.hidden = this.grow.hidden = empty;
    const shape = JSON.stringify(panel.lines.map((line) => [line.label, line.slot]));
    if (shape !== this.shape) {
      this.shape = shape;
      this.#dropGraph();
      this.theme = null;  // the legend is to be made anew
    }
  }

  destroy() {
    this.#dropGraph();
    this.observer.disconnect();
    this.element.remove();
  }

  #dropGraph() {
    this.graph?.destroy();
    this.graph = null;
  }

  resize() {
    if (!this.graph) return;
    this.graph.resize();
    this.#placeCursor();
  }

  // Computes, and draws what is in sight. view: {rows, fromMs, toMs, theme, log, cursorMs}
  draw(view) {
    if (!this.panel.lines.length) return;
    this.rows = view.rows;
    this.view = view;
    this.columns =
        this.panel.lines.map((line) => view.rows.map((row) => line.at(row.from, row.to)));
    if (view.theme !== this.theme) this.#makeLegend(view.theme);
    this.values();
    if (this.panel.alarm) this.#raise();
    if (!this.visible) return;
    this.#plot();
    this.#placeCursor();
  }

  #plot() {
    const {rows, fromMs, toMs, theme} = this.view;
    const log = Boolean(this.panel.log && this.view.log);
    const data = rows.map(
        (row, at) => [row.time, ...this.columns.map((column) => this.#drawn(column[at], log))]);
    if (!data.length) data.push([toMs, ...this.columns.map(() => null)]);
    const options = {
      file: data,
      dateWindow: [fromMs, toMs],
      logscale: log,
      valueRange: this.#range(log),
      ...this.#colours(theme)
    };
    if (this.graph)
      this.graph.updateOptions(options);
    else
      this.#makeGraph(options);
  }

  // Of what should not be, only what is in the window has a name in the legend.
  #raise() {
    const moved = this.columns.map((column) => column.some((value) => value > 0));
    this.panel.lines.forEach((line, at) => {
      this.entries[at].parentElement.hidden = !moved[at];
    });
    const any = moved.includes(true);
    this.element.classList.toggle('alarm', any);
    this.note.hidden = any;
    if (any) return;
    const before = this.panel.lines.map((line) => `${line.label} ${exact(line.total())}`);
    setText(this.note, `None in this window. Since start: ${before.join(', ')}.`);
  }

  #drawn(value, log) {
    return log && !(value > 0) ? null : value;
  }

  // From nothing to a little above the highest; of logarithms what there is.
  #range(log) {
    let low = Infinity, high = 0;
    for (let at = 0; at < this.rows.length; ++at) {
      let sum = 0;
      for (const column of this.columns) {
        const value = column[at];
        if (value === null) continue;
        if (value > 0) low = Math.min(low, value);
        high = Math.max(high, this.panel.stacked ? (sum += value) : value);
      }
    }
    if (log) return high > 0 ? [low / 1.3, high * 1.3] : [1e-6, 1e-3];
    if (this.panel.unit === '%') return [0, Math.max(1, high) * 1.03];
    return [0, high > 0 ? high * 1.08 : 1];
  }

  #colours(theme) {
    const slots = this.panel.lines.map((line) => line.slot);
    const series = {};
    this.panel.lines.forEach((line) => {
      series[line.label] = {strokePattern: of(kDashes, line.slot)};
    });
    return {
      colors: slots.map((slot) => of(kColours[theme], slot)),
      series,
      gridLineColor: kInk[theme].grid,
      axisLineColor: kInk[theme].axis
    };
  }

  #makeGraph({file, ...options}) {
    const rem = remPx();
    const {unit, stacked} = this.panel;
    const ticker = (low, high, pixels) => {
      const count = Math.max(2, Math.floor(pixels / (rem * 2)));
      const values = this.view.log && this.panel.log ? logTicks(low, high, count) :
                                                       linearTicks(low, high, count, unit);
      return values.map((v) => ({v, label: format(v, unit)}));
    };
    this.graph = new Dygraph(this.plot, file, {
      ...options,
      labels: ['time', ...this.panel.lines.map((line) => line.label)],
      legend: 'never',
      stackedGraph: Boolean(stacked),
      fillGraph: Boolean(stacked),
      fillAlpha: 0.3,
      strokeWidth: rem / 9,
      highlightCircleSize: rem / 5,
      connectSeparatedPoints: false,
      pointSize: rem / 8,
      drawGapEdgePoints: true,
      animatedZooms: false,
      rightGap: 6,
      axes: {
        x: {
          ticker: (from, to, pixels) => timeTicks(from, to, pixels / (rem * 4.5)),
          drawGrid: false,
          axisLabelWidth: rem * 5
        },
        y: {ticker, axisLabelWidth: rem * 4.6, drawGrid: true},
      },
      // No touch handlers: a finger scrolls the page. No panning: charts would come apart.
      interactionModel: {
        mousedown: (event, graph, context) => {
          if (!event.shiftKey && !event.altKey)
            Dygraph.defaultInteractionModel.mousedown(event, graph, context);
        },
        dblclick: () => this.host.zoom(null),
        willDestroyContextMyself: true,
      },
      highlightCallback: (event, x) => this.host.cursor(x),
      unhighlightCallback: () => this.host.cursor(null),
      zoomCallback: (from, to) => {
        const {fromMs, toMs} = this.view;
        if (to - from < 0.99 * (toMs - fromMs))
          this.host.zoom(from, to);
        else
          this.host.redraw(this);  // dragged upwards: values keep their axis
      },
    });
  }

  #makeLegend(theme) {
    this.theme = theme;
    this.entries = [];
    const items = this.panel.lines.map((line) => {
      const value = make('b', {}, kNone);
      this.entries.push(value);
      return make(
          'li', {}, swatch(of(kColours[theme], line.slot), of(kDashes, line.slot)),
          make('span', {}, line.label), value);
    });
    this.legend.replaceChildren(...items);
    this.cells = this.panel.lines.map(() => [0, 1, 2, 3].map(() => make('td')));
    this.body.replaceChildren(...this.panel.lines.map(
        (line, at) => make('tr', {}, make('th', {scope: 'row'}, line.label), ...this.cells[at])));
  }

  // The row at the cursor, or the last one.
  #row() {
    const {cursorMs} = this.view;
    if (cursorMs === null) return this.rows.length - 1;
    let best = -1, distance = Infinity;
    this.rows.forEach((row, at) => {
      const away = Math.abs(row.time - cursorMs);
      if (away < distance) best = at, distance = away;
    });
    return best;
  }

  // "Operations at 15:04:12: read 220 k/s, write 80 k/s"
  sentence() {
    const row = this.#row();
    if (row < 0) return `${this.panel.title}: no sample yet`;
    const values = this.panel.lines.map(
        (line, at) => `${line.label} ${format(this.columns[at][row], this.panel.unit)}`);
    return `${this.panel.title} at ${clock(this.rows[row].time)}: ${values.join(', ')}`;
  }

  values() {
    const row = this.#row();
    const {unit, lines} = this.panel;
    this.entries.forEach(
        (entry, at) => setText(entry, format(row < 0 ? null : this.columns[at][row], unit)));
    this.box.setAttribute('aria-label', this.sentence());
    if (!this.details.open) return;
    lines.forEach((line, at) => {
      const known = this.columns[at].filter((value) => value !== null);
      const mean =
          known.length ? known.reduce((sum, value) => sum + value, 0) / known.length : null;
      // Of a gauge, all of its digits: what /metrics has.
      const now = line.now ?
          (unit === '' || unit === 'B' ? exact(line.now()) : format(line.now(), unit)) :
          format(row < 0 ? null : this.columns[at][row], unit);
      const texts = [
        now, format(mean, unit), format(known.length ? Math.max(...known) : null, unit),
        line.total ? exact(line.total()) : kNone
      ];
      texts.forEach((text, cell) => setText(this.cells[at][cell], text));
    });
  }

  // Shows the moment that all charts show.
  point(cursorMs) {
    if (!this.view || !this.panel.lines.length) return;
    this.view = {...this.view, cursorMs};
    this.values();
    this.#placeCursor();
  }

  #placeCursor() {
    if (!this.graph || !this.view) return;
    const row = this.view.cursorMs === null ? -1 : this.#row();
    this.line.hidden = row < 0;
    if (row < 0) {
      this.graph.clearSelection();
      return;
    }
    this.graph.setSelection(row);
    this.line.style.transform = `translateX(${this.graph.toDomXCoord(this.rows[row].time)}px)`;
  }
}
