// The row of key figures: each is what one looks at first, with what it is measured by.

import {Builder} from './builder.js';
import {make, setText} from './chart.js';
import {errorLines} from './errors.js';
import {exact, format, kNone} from './format.js';


const kWarnPool = 0.9;
const kWarnQueue = 0.8;

// figure: {id, name, value, note, tone: '', 'warn' or 'bad'}
function traffic(history, last) {
  const ok = history.find('remora_client_operations_total', {status: 'ok'});
  const served = history.find('remora_server_tcp_operations_total');
  const rate = (list) => history.rate(list)(last, last);
  if (ok.length) {
    const read = rate(history.find('remora_client_read_bytes_total'));
    const written = rate(history.find('remora_client_written_bytes_total'));
    return [
      {
        id: 'operations',
        name: 'Operations',
        value: format(rate(ok), '/s'),
        note: `${exact(history.total(ok))} in all`
      },
      {
        id: 'bytes',
        name: 'Throughput',
        value: format(sum(read, written), 'B/s'),
        note: `read ${format(read, 'B/s')}, written ${format(written, 'B/s')}`
      },
      ...latency(history, last),
    ];
  }
  if (!served.length) return [];
  const bytes = history.find('remora_server_tcp_bytes_total');
  const [control] = history.find('remora_server_control_latency_seconds');
  const unseen = history.total(
      history.find('remora_server_sessions').filter((one) => one.labels.transport !== 'tcp'));
  const note =
      unseen > 0 ? 'rdma and shm: on the clients’ pages' : `${exact(history.total(served))} in all`;
  return [
    {id: 'operations', name: 'Served over tcp', value: format(rate(served), '/s'), note},
    {
      id: 'bytes',
      name: 'Throughput over tcp',
      value: format(rate(bytes), 'B/s'),
      note: [
        'read', 'write'
      ].map((op) => `${op} ${format(rate(bytes.filter((one) => one.labels.op === op)), 'B/s')}`)
                .join(', ')
    },
    ...(control ? [{
      id: 'p99',
      name: 'Control p99',
      value: format(recent(history, control, 'p99'), 's'),
      note: 'worst of the last minute'
    }] :
                  []),
  ];
}

const sum = (a, b) => (a === null && b === null ? null : (a ?? 0) + (b ?? 0));

// The worst of the last minute: control requests are too rare for one interval.
function recent(history, one, field) {
  const from = Math.max(0, history.last - Math.round(60000 / history.periodMs));
  return history.quantile(one, field)(from, history.last);
}

// Of the kind of operation that ends most often.
function latency(history, last) {
  const busiest =
      history.find('remora_client_operation_latency_seconds')
          .map((one) => ({
                 one,
                 ended: (one.count[last] ?? 0) - (one.count[last - 1] ?? one.count[last] ?? 0)
               }))
          .sort((a, b) => b.ended - a.ended)[0];
  if (!busiest) return [];
  const {one, ended} = busiest;
  const value = ended > 0 ? history.latest(one, 'p99') : null;
  const note = ended > 0 ? `${one.labels.op} over ${one.labels.transport}, p50 ${
                               format(history.latest(one, 'p50'), 's')}` :
                           'nothing ended just now';
  return [{id: 'p99', name: 'Latency p99', value: format(value, 's'), note}];
}

function trouble(history, last) {
  const lines = errorLines(new Builder(history)).filter((line) => !line.told);
  if (!lines.length) return [];
  const total = lines.reduce((all, line) => all + (line.total() ?? 0), 0);
  const now = lines.reduce((all, line) => all + (line.at(last, last) ?? 0), 0);
  const worst = lines.filter((line) => line.at(last, last) > 0)
                    .sort((a, b) => b.at(last, last) - a.at(last, last))[0];
  return [{
    id: 'errors',
    name: 'Errors',
    value: format(now, '/s'),
    tone: now > 0 ? 'bad' : '',
    note: worst   ? worst.label :
        total > 0 ? `none now, ${exact(total)} since start` :
                    'none since start'
  }];
}

function queues(history) {
  const figures = [];
  // Of the transport whose queue is fullest; over shm there is none.
  const fullest =
      history.find('remora_client_cq_capacity')
          .map((one) => {
            const {transport} = one.labels;
            const high =
                history.total(history.find('remora_client_cq_depth_high_water', {transport}));
            return {transport, high, capacity: history.latest(one)};
          })
          .filter(
              ({transport, high, capacity}) => transport !== 'shm' && high !== null && capacity > 0)
          .sort((a, b) => b.high / b.capacity - a.high / a.capacity)[0];
  if (fullest) {
    const {high, capacity, transport} = fullest;
    figures.push({
      id: 'cq',
      name: 'CQ high water',
      value: format(high, ''),
      tone: high >= kWarnQueue * capacity ? 'warn' : '',
      note: `of ${exact(capacity)} entries over ${transport}`
    });
  }
  const occupied = history.find('remora_client_send_queue_occupancy_high_water')
                       .filter((one) => one.labels.transport !== 'shm');
  const lanes = history.total(history.find('remora_client_lanes'));
  if (occupied.length && lanes !== null) {
    figures.push({
      id: 'queue',
      name: 'Send queue',
      value: format(history.total(occupied), ''),
      note: `high water, ${exact(lanes)} ${lanes === 1 ? 'lane' : 'lanes'} open`
    });
  }
  return figures;
}

function served(history) {
  const sessions = history.find('remora_server_sessions');
  if (!sessions.length) return [];
  const figures = [{
    id: 'sessions',
    name: 'Sessions',
    value: exact(history.total(sessions)),
    note: sessions.filter((one) => history.latest(one) > 0)
              .map((one) => `${exact(history.latest(one))} ${one.labels.transport}`)
              .join(', ') ||
        'no client is connected'
  }];
  const pool = history.find('remora_server_pool_bytes');
  const whole = history.total(pool);
  const free = history.total(pool.filter((one) => one.labels.state === 'free'));
  if (whole > 0 && free !== null) {
    const used = whole - free;
    figures.push({
      id: 'pool',
      name: 'Pool used',
      value: format(used / whole, '%'),
      tone: used >= kWarnPool * whole ? 'warn' : '',
      note: `${format(free, 'B')} free of ${format(whole, 'B')}`
    });
  }
  figures.push(...registration(history));
  return figures;
}

// Of a server that has a cluster.
function registration(history) {
  const registered = history.total(history.find('remora_server_cluster_registered'));
  const age = history.total(history.find('remora_server_cluster_keep_alive_age_seconds'));
  if (registered === null || age === null) return [];
  return [{
    id: 'cluster',
    name: 'Cluster',
    value: registered > 0 ? 'registered' : 'not registered',
    tone: registered > 0 ? '' : 'bad',
    note: `lease renewed ${format(age, 's')} ago`
  }];
}

// Of a client that has volumes open.
function volumes(history) {
  const open = history.total(history.find('remora_client_volumes'));
  if (!(open > 0)) return [];
  const groups = (state) =>
      history.total(history.find('remora_client_volume_groups', {state})) ?? 0;
  const [ok, unreachable, lost, revoked] =
      ['ok', 'unreachable', 'lost', 'revoked'].map((state) => groups(state));
  const bad = [[lost, 'lost'], [unreachable, 'unreachable'], [revoked, 'revoked']]
                  .filter(([count]) => count > 0)
                  .map(([count, state]) => `${exact(count)} ${state}`);
  return [{
    id: 'groups',
    name: 'Groups of volumes',
    value: `${exact(ok)} of ${exact(ok + unreachable + lost + revoked)} ok`,
    tone: lost > 0 ? 'bad' :
        bad.length ? 'warn' :
                     '',
    note: bad.join(', ') || `${exact(open)} ${open === 1 ? 'volume' : 'volumes'} open`
  }];
}

// Of a client that has claimed mirrors.
function mirrors(history) {
  const claimed = history.total(history.find('remora_client_mirror_writers'));
  if (!(claimed > 0)) return [];
  const groups = (state) =>
      history.total(history.find('remora_client_mirror_groups', {state})) ?? 0;
  const [inSync, degraded, promoting, lost, unadopted] =
      ['in_sync', 'degraded', 'promoting', 'lost', 'unadopted'].map((state) => groups(state));
  const bad =
      [[lost, 'lost'], [unadopted, 'unadopted'], [promoting, 'promoting'], [degraded, 'degraded']]
          .filter(([count]) => count > 0)
          .map(([count, state]) => `${exact(count)} ${state}`);
  const all = inSync + degraded + promoting + lost + unadopted;
  return [{
    id: 'mirrors',
    name: 'Groups of mirrors',
    value: `${exact(inSync)} of ${exact(all)} in sync`,
    tone: lost > 0 ? 'bad' :
        bad.length ? 'warn' :
                     '',
    note: bad.join(', ') || `${exact(claimed)} ${claimed === 1 ? 'mirror' : 'mirrors'} claimed`
  }];
}

function itself(history, last) {
  const cpu = history.find('process_cpu_seconds_total');
  if (!cpu.length) return [];
  const memory = history.total(history.find('process_resident_memory_bytes'));
  return [{
    id: 'cpu',
    name: 'Processor',
    value: format(history.rate(cpu)(last, last), 'cores'),
    note: `${format(memory, 'B')} resident`
  }];
}

// Elements are kept while figures stay the same ones.
export class Figures {
  constructor(host) {
    this.host = host;
    this.shown = new Map();
  }

  draw(history) {
    const last = history.last;
    if (last < 0) return;
    const figures = [
      ...traffic(history, last), ...trouble(history, last), ...queues(history), ...volumes(history),
      ...mirrors(history), ...served(history), ...itself(history, last)
    ];
    const ids = figures.map((figure) => figure.id).join();
    if (ids !== this.ids) this.#begin(figures, ids);
    for (const {id, value, note, tone} of figures) {
      const parts = this.shown.get(id);
      setText(parts.value, value ?? kNone);
      setText(parts.note, note ?? '');
      parts.element.className = `figure ${tone ?? ''}`.trim();
    }
  }

  #begin(figures, ids) {
    this.ids = ids;
    this.shown = new Map(figures.map(({id, name}) => {
      const value = make('dd', {class: 'value'});
      const note = make('dd', {class: 'note'});
      return [
        id, {
          value,
          note,
          element:
              make('div', {class: 'figure', 'data-figure': id}, make('dt', {}, name), value, note)
        }
      ];
    }));
    this.host.replaceChildren(...[...this.shown.values()].map((parts) => parts.element));
  }
}
