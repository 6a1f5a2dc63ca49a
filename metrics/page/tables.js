// Regions, sessions, transports and devices, as /status tells them. What a peer or a file has
// chosen (names, addresses, reasons) goes into the page as text and never as markup.

import {make, setText} from './chart.js';
import {duration, exact, format, kNone} from './format.js';

const kRowsShown = 200;
const kFilterFrom = 12;

const size = (value) => format(value, 'B');
const yes = (value) => (value === undefined || value === null ? kNone : value ? 'yes' : 'no');
const text = (value) =>
    (value === undefined || value === null || value === '' ? kNone : String(value));
const list = (value) => (Array.isArray(value) ? value.join(', ') : text(value));

// column: {key, name, show?, number?}
const kRegions = [
  {key: 'name', name: 'Region'},
  {key: 'size_bytes', name: 'Size', show: size, number: true},
  {key: 'block_bytes', name: 'Block', show: size, number: true},
  {key: 'grants', name: 'Open', show: exact, number: true},
  {key: 'rights', name: 'Rights', show: list},
  {key: 'atomics', name: 'Atomics'},
  {key: 'shm', name: 'Mappable', show: yes},
];
const kServerSessions = [
  {key: 'id', name: 'Session'},
  {key: 'peer', name: 'Peer'},
  {key: 'transport', name: 'Transport'},
  {key: 'device', name: 'Device'},
  {key: 'age_seconds', name: 'Age', show: duration, number: true},
  {key: 'regions', name: 'Regions', show: list, number: true},
  {key: 'lanes', name: 'Lanes', show: exact, number: true},
  {key: 'operations_rate', name: 'Operations', show: (value) => format(value, '/s'), number: true},
  {key: 'read_rate', name: 'Read', show: (value) => format(value, 'B/s'), number: true},
  {key: 'written_rate', name: 'Written', show: (value) => format(value, 'B/s'), number: true},
];
const kClientSessions = [
  {key: 'server', name: 'Server'},
  {key: 'server_name', name: 'Its name'},
  {key: 'connected', name: 'Connected', show: yes},
  {key: 'transport', name: 'Transport'},
  {key: 'device', name: 'Device'},
  {key: 'regions', name: 'Regions', show: list},
  {key: 'lanes', name: 'Lanes', show: exact, number: true},
  {key: 'depth', name: 'Depth', show: exact, number: true},
  {key: 'reason', name: 'Why this transport'},
];
const kTransports = [
  {key: 'name', name: 'Transport'},
  {key: 'offered', name: 'Offered', show: yes},
  {key: 'reason', name: 'Why'},
];
const kRails = [
  {key: 'server', name: 'Server'},
  {key: 'device', name: 'Device'},
  {key: 'server_device', name: 'Device of the server'},
  {key: 'address', name: 'Address'},
  {key: 'gigabits_per_s', name: 'Gb/s', number: true, show: (rate) => (rate ? exact(rate) : kNone)},
  {key: 'lanes', name: 'Lanes', number: true, show: exact}
];

const kDevices = [
  {key: 'name', name: 'Device'},
  {key: 'port', name: 'Port', show: text, number: true},
  {key: 'state', name: 'State'},
  {key: 'link_layer', name: 'Link layer'},
];

// A table whose rows keep their place in the document while their cells change.
class Table {
  constructor(id, title, columns, sortBy) {
    this.columns = columns;
    this.sort = {key: sortBy, down: false};
    this.rows = new Map();
    this.data = [];
    this.heading = make('h2', {});
    this.title = title;
    this.filter = make(
        'input',
        {type: 'search', placeholder: 'filter', 'aria-label': `Filter ${title.toLowerCase()}`});
    this.filter.addEventListener('input', () => this.#arrange());
    this.note = make('p', {class: 'muted'});
    this.heads = columns.map((column) => {
      const button = make('button', {type: 'button'}, column.name);
      button.addEventListener('click', () => this.#sortBy(column));
      return make('th', {scope: 'col', class: column.number ? 'number' : ''}, button);
    });
    this.body = make('tbody');
    this.scroll = make(
        'div', {class: 'scroll', tabIndex: 0, role: 'region', 'aria-label': title},
        make('table', {}, make('thead', {}, make('tr', {}, ...this.heads)), this.body));
    this.element = make(
        'section', {class: 'table', id: `table-${id}`},
        make('div', {class: 'head'}, this.heading, this.filter), this.scroll, this.note);
  }

  #sortBy(column) {
    const same = this.sort.key === column.key;
    this.sort = {key: column.key, down: same ? !this.sort.down : Boolean(column.number)};
    this.#arrange();
  }

  // `total`: how many there are, of which the process may have told only some.
  show(data, total, keyOf, empty) {
    this.data = data.map((one, at) => ({one, key: String(keyOf(one, at))}));
    this.total = total ?? data.length;
    this.empty = empty;
    this.#arrange();
  }

  #shown(column, one) {
    return (column.show ?? text)(one[column.key]);
  }

  #arrange() {
    const {key, down} = this.sort;
    const compare = (a, b) => {
      const [x, y] = [a.one[key] ?? null, b.one[key] ?? null];
      if (x === null || y === null)
        return (x === null) - (y === null);  // unknown is last either way
      const order = typeof x === 'number' && typeof y === 'number' ?
          x - y :
          String(x).localeCompare(String(y), 'en', {numeric: true});
      return down ? -order : order;
    };
    const wanted = this.filter.value.trim().toLowerCase();
    const fits = ({one}) => !wanted ||
        this.columns.some((column) => this.#shown(column, one).toLowerCase().includes(wanted));
    const fitting = this.data.filter(fits).sort(compare);
    this.#fill(fitting.slice(0, kRowsShown));
    this.columns.forEach((column, at) => {
      this.heads[at].setAttribute(
          'aria-sort', column.key === key ? (down ? 'descending' : 'ascending') : 'none');
    });
    // What this process does not tell of any row takes no room.
    this.columns.forEach((column, at) => {
      const known = at === 0 || this.data.length === 0 ||
          this.data.some(({one}) => this.#shown(column, one) !== kNone);
      this.heads[at].hidden = !known;
      for (const row of this.rows.values()) row.children[at].hidden = !known;
    });
    setText(this.heading, `${this.title} (${exact(this.total)})`);
    this.filter.hidden = this.data.length < kFilterFrom && !wanted;
    const hidden = fitting.length - Math.min(fitting.length, kRowsShown);
    const told = this.data.length < this.total ?
        `The process tells ${exact(this.data.length)} of them. ` :
        '';
    const cut = hidden > 0 ? `${exact(hidden)} more: filter to see them.` : '';
    setText(
        this.note,
        this.data.length === 0   ? this.empty :
            fitting.length === 0 ? 'None fits the filter.' :
                                   told + cut);
    this.scroll.hidden = this.data.length === 0;
    this.element.hidden = this.data.length === 0 && this.empty === '';
  }

  #fill(sorted) {
    const rows = new Map();
    sorted.forEach(({one, key}, at) => {
      let row = this.rows.get(key);
      if (!row) {
        row = make(
            'tr', {},
            ...this.columns.map((column) => make('td', {class: column.number ? 'number' : ''})));
      }
      this.columns.forEach(
          (column, cell) => setText(row.children[cell], this.#shown(column, one)));
      rows.set(key, row);
      if (this.body.children[at] !== row)
        this.body.insertBefore(row, this.body.children[at] ?? null);
    });
    for (const [key, row] of this.rows)
      if (!rows.has(key)) row.remove();
    this.rows = rows;
  }
}

// Rates of a session: what it has counted since the answer before.
class Rates {
  constructor() {
    this.before = new Map();
  }

  add(sessions, nowMs) {
    const now = new Map();
    const rated = sessions.map((session) => {
      const operations = session.operations ?
          Object.values(session.operations).reduce((sum, count) => sum + (count ?? 0), 0) :
          null;
      const counts = {
        at: nowMs,
        operations_rate: operations,
        read_rate: session.read_bytes ?? null,
        written_rate: session.written_bytes ?? null
      };
      now.set(session.id, counts);
      const before = this.before.get(session.id);
      const rates = {};
      for (const key of ['operations_rate', 'read_rate', 'written_rate']) {
        const rise = before && counts[key] !== null && before[key] !== null ?
            counts[key] - before[key] :
            null;
        rates[key] = rise !== null && rise >= 0 && nowMs > before.at ?
            (rise * 1000) / (nowMs - before.at) :
            null;
      }
      return {...session, ...rates};
    });
    this.before = now;
    return rated;
  }
}

export class Tables {
  constructor(host) {
    this.host = host;
    this.kind = null;
    this.tables = {};
    this.rates = new Rates();
  }

  #begin(kind) {
    this.kind = kind;
    this.rates = new Rates();
    this.tables = {};
    if (kind === 'server') {
      this.tables.regions = new Table('regions', 'Regions', kRegions, 'name');
      this.tables.sessions = new Table('sessions', 'Sessions', kServerSessions, 'peer');
      this.tables.transports = new Table('transports', 'Transports', kTransports, 'name');
    } else if (kind === 'client') {
      this.tables.sessions = new Table('sessions', 'Sessions', kClientSessions, 'server');
      this.tables.rails = new Table('rails', 'Rails', kRails, 'server');
    }
    if (kind === 'server' || kind === 'client')
      this.tables.devices = new Table('devices', 'RDMA devices', kDevices, 'name');
    this.host.replaceChildren(...Object.values(this.tables).map((table) => table.element));
  }

  // Takes an answer of /status; `begun`: of another process than the one before.
  update(status, nowMs, begun) {
    if (status.kind !== this.kind || begun) this.#begin(status.kind);
    const {regions, sessions, rails, transports, devices} = this.tables;
    const array = (value) =>
        (Array.isArray(value) ? value.filter((one) => one && typeof one === 'object') : []);
    regions?.show(
        array(status.regions), status.regions_total, (one) => one.name, 'No region exists.');
    if (sessions) {
      const all = array(status.sessions);
      const rated = this.kind === 'server' ? this.rates.add(all, nowMs) : all;
      sessions.show(rated, status.sessions_total, (one, at) => one.id ?? at, 'No session is open.');
    }
    rails?.show(
        array(status.sessions)
            .flatMap((one) => array(one.rails).map((rail) => ({...rail, server: one.server}))),
        undefined, (one, at) => `${one.server}/${one.device}/${one.address}/${at}`, '');
    transports?.show(array(status.transports), undefined, (one) => one.name, '');
    devices?.show(array(status.devices), undefined, (one) => `${one.name}/${one.port}`, '');
  }
}
