// The page: asks the process what it has sampled, and draws it.

import {ask, Refused, stored, Unauthorized, useToken} from './api.js';
import {Chart, make, setText} from './chart.js';
import {Figures} from './figures.js';
import {clock, duration, format, zone} from './format.js';
import {History} from './history.js';
import {definePanels} from './panels.js';
import {Tables} from './tables.js';

const kRowsMax = 240;  // points of a line; more than a chart has room to show apart
const kSpanMinMs = 60000;
const kHiddenPollMs = 30000;  // a hidden page: the process keeps the samples
const kLostAfter = 3;         // periods without an answer

const element = (id) => document.getElementById(id);
const history = new History();
const tables = new Tables(element('tables'));
const figures = new Figures(element('figures'));
const charts = new Map();
const dark = matchMedia('(prefers-color-scheme: dark)');

const view = {
  windowS: Number(stored.get('localStorage', 'remora.window')) || 300,
  range: null,     // [from, to] in ms after a zoom, else the latest `windowS`
  pausedMs: null,  // when it was paused
  cursorMs: null,
  log: stored.get('localStorage', 'remora.scale') !== 'linear',
  theme: stored.get('localStorage', 'remora.theme') ?? 'auto',
};
const link = {
  answeredMs: null,
  failure: '',
  waiting: false,
  status: null,
  timer: 0
};

const themeNow = () => (view.theme === 'auto' ? (dark.matches ? 'dark' : 'light') : view.theme);

// The span that charts show; sample times are the process's clock, so is this.
function span() {
  if (view.range) return view.range;
  const newest = history.times.at(-1) ?? Date.now();
  const to = view.pausedMs ?? newest;
  // A process that has just begun fills the charts from its first minute on.
  const begun = Math.min(history.times[0] ?? to, to - kSpanMinMs);
  return [Math.max(to - view.windowS * 1000, history.times.length < history.kept ? begun : 0), to];
}

function viewNow() {
  const [fromMs, toMs] = span();
  return {
    rows: history.buckets(fromMs, toMs, kRowsMax),
    fromMs,
    toMs,
    theme: themeNow(),
    log: view.log,
    cursorMs: view.cursorMs
  };
}

function drawAll() {
  const now = viewNow();
  for (const chart of charts.values()) chart.draw(now);
}

const host = {
  redraw: (chart) => chart.draw(viewNow()),
  cursor(timeMs) {
    if (view.cursorMs === timeMs) return;
    view.cursorMs = timeMs;
    for (const chart of charts.values()) chart.point(timeMs);
  },
  zoom(fromMs, toMs) {
    view.range = fromMs === null ? null : [fromMs, toMs];
    showControls();
    drawAll();
  },
  // Keys on a chart: the cursor moves by one drawn point.
  step(event) {
    const {rows} = viewNow();
    if (event.ctrlKey || event.altKey || event.metaKey || !rows.length) return;
    const at =
        view.cursorMs === null ? rows.length : rows.findIndex((row) => row.time >= view.cursorMs);
    const here = at < 0 ? rows.length - 1 : at;
    const stride = event.shiftKey ? 10 : 1;
    const to = {
      ArrowLeft: here - stride,
      ArrowRight: here + stride,
      Home: 0,
      End: rows.length - 1,
      Escape: null
    }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    host.cursor(to === null ? null : rows[Math.min(rows.length - 1, Math.max(0, to))].time);
    const chart = [...charts.values()].find((one) => one.element.contains(event.target));
    setText(element('said'), to === null || !chart ? '' : chart.sentence());
  },
};

const seen = new IntersectionObserver((entries) => {
  const now = viewNow();
  for (const entry of entries) {
    const chart = charts.get(entry.target.id.replace(/^panel-/, ''));
    if (!chart) continue;
    chart.visible = entry.isIntersecting;
    if (chart.visible) chart.draw(now);
  }
}, {rootMargin: '200px'});

// Panels follow the series: which there are, and which have counted anything.
function arrange() {
  const panels = definePanels(history);
  const sections = new Map();
  for (const panel of panels) {
    if (!sections.has(panel.section)) sections.set(panel.section, []);
    sections.get(panel.section).push(panel);
  }
  const shape = JSON.stringify(panels.map((panel) => [panel.section, panel.id]));
  for (const panel of panels) {
    const chart = charts.get(panel.id);
    if (chart)
      chart.define(panel);
    else
      charts.set(panel.id, new Chart(panel, host));
  }
  if (shape === arrange.shape) return;
  arrange.shape = shape;
  const ids = new Set(panels.map((panel) => panel.id));
  for (const [id, chart] of charts) {
    if (ids.has(id)) continue;
    seen.unobserve(chart.element);
    chart.destroy();
    charts.delete(id);
  }
  const shown = [...sections].map(
      ([name, list], at) => make(
          'section', {class: 'section', 'aria-labelledby': `section-${at}`},
          make('h2', {id: `section-${at}`}, name),
          make('div', {class: 'grid'}, ...list.map((panel) => charts.get(panel.id).element))));
  element('panels').replaceChildren(...shown.slice(0, 1));  // the clients come next, then the rest
  element('more').replaceChildren(...shown.slice(1));
  for (const chart of charts.values()) seen.observe(chart.element);
}

function showStatus(status) {
  const kind = status.kind === 'server' ? 'Remora server' :
      status.kind === 'client'          ? 'Remora client' :
                                          'Remora metrics';
  setText(element('title'), kind);
  const facts = [
    location.host, status.version && `version ${status.version}`,
    Number.isFinite(status.uptime_seconds) && `up ${duration(status.uptime_seconds)}`,
    Array.isArray(status.listening) && status.listening.length &&
        `listening on ${status.listening.join(', ')}`
  ];
  const items = facts.filter(Boolean);
  const host_ = element('facts');
  while (host_.children.length > items.length) host_.lastChild.remove();
  items.forEach((text, at) => setText(host_.children[at] ?? host_.appendChild(make('li')), text));
  const reasons = Array.isArray(status.reasons) ? status.reasons : [];
  const unready = status.ready === false;
  setText(
      element('reasons'),
      unready ? `Not ready: ${reasons.join('; ') || 'the process does not say why'}` : '');
  element('reasons').hidden = !unready;
}

function showLink() {
  const silentMs = link.answeredMs === null ? 0 : performance.now() - link.answeredMs;
  const lost =
      link.failure !== '' && (link.answeredMs === null || silentMs > kLostAfter * history.periodMs);
  const banner = element('lost');
  banner.hidden = !lost;
  if (lost) {
    const since =
        link.answeredMs === null ? 'No answer' : `No answer since ${duration(silentMs / 1000)}`;
    setText(
        banner,
        `${since} from ${location.host} (${
            link.failure}). What is shown is the last that it said; trying again.`);
  }
  document.body.classList.toggle('stale', lost);
  const unready = link.status?.ready === false;
  const state = lost ? 'no answer' : !link.status ? 'connecting' : unready ? 'not ready' : 'ready';
  const pill = element('ready');
  setText(pill, state);
  pill.className = `pill ${lost || unready ? 'bad' : link.status ? 'good' : ''}`;
  setText(
      document.querySelector('title'),
      `${lost || unready ? `${state} – ` : ''}${element('title').textContent} ${location.host}`);
  const colour = lost || unready ? 'd55e00' : link.status ? '009e73' : '808080';
  const icon = element('icon').href.replace(/fill='%23[0-9a-f]{6}'/, `fill='%23${colour}'`);
  if (element('icon').href !== icon) element('icon').href = icon;
}

function showControls() {
  for (const button of document.querySelectorAll('[data-window]')) {
    button.setAttribute(
        'aria-pressed', String(!view.range && Number(button.dataset.window) === view.windowS));
  }
  element('live').hidden = !view.range && view.pausedMs === null;
  element('pause').setAttribute('aria-pressed', String(view.pausedMs !== null));
  setText(element('pause'), view.pausedMs !== null ? 'Go on' : 'Pause');
  element('scale').setAttribute('aria-pressed', String(view.log));
  setText(element('theme'), `Theme: ${view.theme}`);
}

function showSampled() {
  const newest = history.times.at(-1);
  const held = view.pausedMs !== null ? ` Paused at ${clock(view.pausedMs)}.` : '';
  setText(
      element('sampled'),
      newest === undefined ?
          'no sample yet' :
          `Last sample ${clock(newest)} ${zone()}, every ${format(history.periodMs / 1000, 's')}, ${
              history.times.length} kept.${held}`);
  element('sampled').dataset.sampledMs = newest ?? '';
}

const applyTheme = () => {
  document.documentElement.dataset.theme = themeNow();
  drawAll();
};

// One round of questions; the next one follows when it has ended.
async function poll() {
  clearTimeout(link.timer);
  if (link.waiting) return;
  link.waiting = true;
  try {
    const [samples, status] = await Promise.all([askHistory(), ask('status')]);
    link.answeredMs = performance.now();
    link.failure = '';
    link.status = status;
    take(samples, status);
  } catch (error) {
    if (error instanceof Unauthorized && askForToken(error)) return;
    link.failure = reasonOf(error);
  } finally {
    link.waiting = false;
    showLink();
  }
  const period = Math.min(10000, Math.max(500, history.periodMs));
  link.timer = setTimeout(poll, document.hidden ? kHiddenPollMs : period);
}

// Null where the process keeps none, which its application may choose.
async function askHistory() {
  try {
    return await ask(`history?since=${history.next}`);
  } catch (error) {
    if (error instanceof Refused && error.status === 404) return null;
    throw error;
  }
}

function reasonOf(error) {
  if (error instanceof Unauthorized) return 'it asks for credentials; reload the page to sign in';
  if (error instanceof Refused) return error.message;
  if (error?.name === 'TimeoutError') return 'the request took too long';
  return error instanceof SyntaxError ? 'its answer was cut short' : 'the connection failed';
}

function take(samples, status) {
  const begun = samples !== null && history.apply(samples);
  if (begun) {
    Object.assign(view, {range: null, pausedMs: null, cursorMs: null});
    showControls();
    notice(`The process was started again; what was before is gone (${clock(Date.now())}).`);
  }
  showStatus(status);
  tables.update(status, performance.now(), begun);
  if (samples === null) {
    setText(
        element('panels'),
        'This process keeps no history, so there are no charts here. Its values of this moment are at /metrics.');
  }
  if (history.last < 0) return;
  arrange();
  figures.draw(history);
  if (view.pausedMs === null && !view.range) drawAll();
  showSampled();
}

function notice(text) {
  setText(element('notice'), text);
  element('notice').hidden = false;
  clearTimeout(notice.timer);
  notice.timer = setTimeout(() => {
    element('notice').hidden = true;
  }, 60000);
}

// True when the page waits for a token now. A browser asks for a password by itself.
function askForToken(error) {
  if (!error.bearer) return false;
  const wrong = element('token-error');
  wrong.hidden = !error.sent;
  setText(
      wrong,
      error.sent ? 'The endpoint refused this token. Is it another endpoint’s, or an old one?' :
                   '');
  element('main').hidden = true;
  element('token').hidden = false;
  element('token-value').focus();
  return true;
}

element('token').addEventListener('submit', (event) => {
  event.preventDefault();
  useToken(element('token-value').value.trim());
  element('token-value').value = '';
  element('token').hidden = true;
  element('main').hidden = false;
  poll();
});

const actions = {
  window(seconds) {
    Object.assign(view, {windowS: seconds, range: null});
    stored.set('localStorage', 'remora.window', String(seconds));
  },
  pause() {
    view.pausedMs = view.pausedMs === null ? history.times.at(-1) ?? Date.now() : null;
  },
  live() {
    Object.assign(view, {range: null, pausedMs: null});
  },
  scale() {
    view.log = !view.log;
    stored.set('localStorage', 'remora.scale', view.log ? 'log' : 'linear');
  },
  theme() {
    view.theme = {auto: 'light', light: 'dark', dark: 'auto'}[view.theme] ?? 'auto';
    stored.set('localStorage', 'remora.theme', view.theme);
    applyTheme();
  },
};

function act(name, ...values) {
  actions[name](...values);
  showControls();
  showSampled();
  drawAll();
}

for (const button of document.querySelectorAll('[data-window]')) {
  button.addEventListener('click', () => act('window', Number(button.dataset.window)));
}
for (const name of ['pause', 'live', 'scale', 'theme'])
  element(name).addEventListener('click', () => act(name));
const about = element('about');
element('help').addEventListener('click', () => about.showModal());

const kKeys = {
  1: ['window', 300],
  2: ['window', 900],
  3: ['window', 3600],
  p: ['pause'],
  n: ['live'],
  l: ['scale'],
  t: ['theme']
};
document.addEventListener('keydown', (event) => {
  if (event.ctrlKey || event.altKey || event.metaKey || about.open ||
      event.target.closest?.('input'))
    return;
  if (event.key === '?') about.showModal();
  const action = kKeys[event.key.toLowerCase()];
  if (action) act(...action);
});

dark.addEventListener('change', applyTheme);
document.addEventListener('visibilitychange', () => {
  if (!document.hidden) poll();
});
addEventListener('pageshow', (event) => {
  if (event.persisted) poll();
});
setInterval(showLink, 1000);

document.documentElement.dataset.theme = themeNow();
showControls();
poll();
