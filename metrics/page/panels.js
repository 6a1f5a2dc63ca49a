// Which charts there are, and what each draws. All of it follows from the series that the process
// has: a panel without series is left out, or says in one line why it is empty.
//
// panel: {id, section, title, unit, help, lines, log?, stacked?, alarm?, empty?}; `alarm`: its lines
//        should be 0, and only those that are not are named
// line:  {label, slot, at(from, to), total?, dash?}; `slot` is its colour, for good

import {words} from './format.js';

const kOps = ['read', 'write', 'cas', 'add'];
const kLatencies = [...kOps, 'atomic'];
const kQuantiles = [['p50', 'p50'], ['p90', 'p90'], ['p99', 'p99'], ['p999', 'p99.9'], ['max', 'max']];

const unique = (list) => [...new Set(list)];
const labelsOf = (list, label) => unique(list.map((one) => one.labels[label] ?? ''));

// Collects panels, and which series they show: what nobody has claimed is shown as it is.
class Builder {
  constructor(history) {
    this.history = history;
    this.panels = [];
    this.claimed = new Set();
  }

  find(name, labels) {
    const found = this.history.find(name, labels);
    for (const one of found) this.claimed.add(one.key);
    return found;
  }

  add(panel) {
    if (panel.lines.length || panel.empty) this.panels.push(panel);
  }

  rate(label, slot, list) {
    return list.length
      ? [{label, slot, at: this.history.rate(list), total: () => this.history.total(list)}] : [];
  }

  level(label, slot, list, worst = false) {
    return list.length
      ? [{label, slot, at: this.history.level(list, worst), now: () => this.history.total(list)}] : [];
  }

  // One line for each value of a label.
  rates(list, label, order = []) {
    const values = labelsOf(list, label);
    const sorted = [...order.filter((value) => values.includes(value)),
                    ...values.filter((value) => !order.includes(value))];
    return sorted.flatMap((value, slot) =>
      this.rate(words(value), slot, list.filter((one) => (one.labels[label] ?? '') === value)));
  }

  quantiles(one, fields = kQuantiles) {
    return fields.map(([field, label], slot) => ({
      label, slot, at: this.history.quantile(one, field),
      total: field === 'max' ? undefined : () => this.history.latest(one, 'count')}));
  }
}

// "read", or "read over tcp" when there is more than one transport.
const over = (name, transport, all) => (all.length > 1 && transport ? `${name} over ${transport}` : name);

// A line that has counted nothing since the process began only takes room.
const counted = (lines) => lines.filter((line) => line.total() > 0);

function clientTraffic(build) {
  const operations = build.find('remora_client_operations_total');
  if (!operations.length) return;
  const ok = operations.filter((one) => one.labels.status === 'ok');
  const transports = labelsOf(ok, 'transport');
  const lines = transports.flatMap((transport, at) => kOps.flatMap((op, slot) =>
    build.rate(over(op, transport, transports), slot + 4 * at,
               ok.filter((one) => one.labels.op === op && one.labels.transport === transport))));
  build.add({id: 'operations', section: 'Service', title: 'Operations', unit: '/s', lines: counted(lines),
    help: 'Operations that were ok, by kind.', empty: 'No operation has ended yet.'});
  const bytes = [['read', build.find('remora_client_read_bytes_total')],
                 ['written', build.find('remora_client_written_bytes_total')]];
  build.add({id: 'bytes', section: 'Service', title: 'Throughput', unit: 'B/s',
    lines: counted(bytes.flatMap(([label, list], slot) => build.rate(label, slot, list))),
    help: 'Payload of operations that were ok.', empty: 'No payload has been moved yet.'});
}

function clientLatency(build) {
  const all = build.find('remora_client_operation_latency_seconds');
  const transports = labelsOf(all, 'transport');
  const seen = all.filter((one) => build.history.latest(one, 'count') > 0)
    .sort((a, b) => kLatencies.indexOf(a.labels.op) - kLatencies.indexOf(b.labels.op));
  for (const one of seen) {
    const {op, transport} = one.labels;
    build.add({id: `latency-${op}-${transport}`, section: 'Service', unit: 's', log: true,
      title: `Latency: ${over(op, transport, transports)}`, lines: build.quantiles(one),
      help: 'Submission to completion, of operations that were ok. It rises with queue depth first: compare the send queue.'});
  }
  if (all.length && !seen.length) {
    build.add({id: 'latency', section: 'Service', title: 'Latency', unit: 's', lines: [], help: '',
      empty: 'No operation has ended yet.'});
  }
}

function clientQueues(build) {
  const posted = (list) => list.filter((one) => one.labels.transport !== 'shm');
  const used = build.history.find('remora_client_operations_total');
  if (used.length > 0 && posted(used).length === 0) {
    build.add({id: 'queues', section: 'Queues and registrations', title: 'Queues', unit: '', lines: [],
      empty: 'Nothing is posted over shm: the caller’s thread copies, so there is no queue.'});
  }
  const gauge = (name, label, slot, worst) => build.level(label, slot, posted(build.find(name)), worst);
  build.add({id: 'cq', section: 'Queues and registrations', title: 'Completion queue', unit: '',
    lines: [...gauge('remora_client_cq_depth_high_water', 'high water', 1, true),
            ...gauge('remora_client_cq_depth', 'depth', 0),
            ...gauge('remora_client_cq_capacity', 'capacity', 2)],
    help: 'Completions that a visit found, and the most since the sample before. High water near the capacity: the application polls too seldom.'});
  build.add({id: 'queue', section: 'Queues and registrations', title: 'Send queue occupancy', unit: '',
    lines: [...gauge('remora_client_send_queue_occupancy_high_water', 'high water', 1, true),
            ...gauge('remora_client_send_queue_occupancy', 'occupancy', 0),
            ...gauge('remora_client_send_queue_capacity', 'capacity', 2)],
    help: 'Work requests posted and not completed, on the lane last used. At the lane’s depth: more lanes, or a deeper one.'});
  for (const [id, name, title, help] of [
    ['doorbell', 'remora_client_doorbell_work_requests', 'Work requests a doorbell',
     'Handed over by one doorbell. Near 1 under load: submit more at once.'],
    ['poll', 'remora_client_poll_completions', 'Completions a poll',
     'Found by a visit that found any; a chain is told by one.']]) {
    const list = posted(build.find(name));
    const lines = list.length ? [{label: 'mean', slot: 0, at: build.history.average(list),
                                  total: () => build.history.total(list, 'count')}] : [];
    if (list.length === 1) {
      lines.push(...build.quantiles(list[0], [['p50', 'p50'], ['p99', 'p99'], ['max', 'max']])
        .map((line, at) => ({...line, slot: at + 1})));
    }
    build.add({id, section: 'Queues and registrations', title, unit: '', lines, help});
  }
  clientWorkRequests(build, posted);
  const lanes = build.find('remora_client_lanes');
  build.add({id: 'lanes', section: 'Queues and registrations', title: 'Lanes', unit: '', help: 'Open data paths, by transport.',
    lines: labelsOf(lanes, 'transport').flatMap((transport, slot) =>
      build.level(transport || 'lanes', slot, lanes.filter((one) => (one.labels.transport ?? '') === transport)))});
}

// Signaled and inline work requests as a share of all.
function clientWorkRequests(build, posted) {
  const all = posted(build.find('remora_client_work_requests_total'));
  const lines = [['signaled', all.filter((one) => one.labels.kind === 'signaled')],
                 ['inline', posted(build.find('remora_client_inline_work_requests_total'))]]
    .flatMap(([label, list], slot) => (list.length && all.length
      ? [{label, slot, at: build.history.share(list, all), total: () => build.history.total(list)}] : []));
  build.add({id: 'requests', section: 'Queues and registrations', title: 'Signaled and inline', unit: '%', lines,
    help: 'Share of the posted work requests that asked for a completion, and of those whose bytes went along.'});
}

function clientSessions(build) {
  const ended = counted(build.rates(build.find('remora_client_sessions_ended_total'), 'reason'));
  build.add({id: 'client-sessions', section: 'Queues and registrations', title: 'Sessions begun and ended', unit: '/s',
    lines: [...build.rate('begun', 0, build.find('remora_client_sessions_total')),
            ...ended.map((line, at) => ({...line, slot: at + 1, label: `ended: ${line.label}`}))],
    help: 'Of this process, with servers. A steady rate without a reason to is a reconnect loop.'});
}

function mrCache(build) {
  const acquires = build.find('remora_client_mr_cache_acquires_total');
  const automatic = build.find('remora_client_mr_cache_automatic');
  build.add({id: 'mr-acquires', section: 'Queues and registrations', title: 'MR cache', unit: '/s',
    lines: build.rates(acquires, 'result', ['hit', 'miss', 'refused', 'failed']),
    help: 'Long transfers by what the cache had. Misses like operations: buffers change each time, or the budget is too small.'});
  build.add({id: 'mr-ends', section: 'Queues and registrations', title: 'Registrations made and ended', unit: '/s',
    lines: [...build.rate('made', 7, build.find('remora_client_mr_cache_registrations_total')),
            ...counted(build.rates(build.find('remora_client_mr_cache_ends_total'), 'cause',
              ['evicted', 'superseded', 'unmapped', 'remapped', 'removed']))],
    help: 'Evicted like misses: raise mr_cache_bytes.'});
  build.add({id: 'mr-pinned', section: 'Queues and registrations', title: 'Pinned by the MR cache', unit: 'B',
    lines: build.level('pinned', 0, build.find('remora_client_mr_cache_pinned_bytes')),
    help: 'In whole pages.' + (automatic.some((one) => build.history.latest(one) === 0)
      ? ' Changes of mappings are not noticed here, so nothing is kept: the log says why.' : '')});
  build.add({id: 'mr-kept', section: 'Queues and registrations', title: 'Registrations kept', unit: '',
    lines: build.level('kept', 0, build.find('remora_client_mr_cache_kept')), help: 'In use or idle.'});
}

function serverMemory(build) {
  const pool = build.find('remora_server_pool_bytes');
  const states = ['used', 'freeing', 'zombie', 'free'];
  const known = labelsOf(pool, 'state');
  build.add({id: 'pool', section: 'Service', title: 'Pool', unit: 'B', stacked: true,
    lines: [...states, ...known.filter((state) => !states.includes(state))].flatMap((state, slot) =>
      build.level(state, slot, pool.filter((one) => one.labels.state === state))).reverse(),  // used at the bottom
    help: 'Memory lent, by what it is; freeing is being zeroed. Free near 0: creating fails.'});
  build.add({id: 'regions', section: 'Service', title: 'Regions and grants', unit: '',
    lines: [...build.level('regions', 0, build.find('remora_server_regions')),
            ...build.level('open', 1, build.find('remora_server_grants'))],
    help: 'Regions that exist, and how often they are open over all sessions.'});
}

// Memory that is not lent any more and that somebody still maps.
function serverZombies(build) {
  const zombies = build.find('remora_server_zombie_bytes');
  if (!zombies.some((one) => one.values.some((value) => value > 0))) return;
  build.add({id: 'zombies', section: 'Service', title: 'Removed and still mapped', unit: 'B',
    lines: build.level('zombie', 0, zombies),
    help: 'Of removed regions, what clients over shm still hold; the memory comes back when they let go.'});
}

function serverTraffic(build) {
  const operations = build.find('remora_server_tcp_operations_total');
  const bytes = build.find('remora_server_tcp_bytes_total');
  if (!build.history.find(/^remora_server_/).length) return;
  const empty = 'Nothing was served over tcp. Over rdma and shm clients reach the memory themselves: their own pages show it.';
  build.add({id: 'served', section: 'Service', title: 'Operations served over tcp', unit: '/s', empty,
    lines: counted(build.rates(operations, 'op', kOps)), help: 'Over rdma and shm the server takes part in none.'});
  build.add({id: 'served-bytes', section: 'Service', title: 'Throughput over tcp', unit: 'B/s', empty,
    lines: counted(build.rates(bytes, 'op', kOps)),
    help: 'Near what a core copies (4 GB/s): the thread that serves tcp is the limit.'});
}

function serverSessions(build) {
  const now = build.find('remora_server_sessions');
  const ever = (transport) => build.history.total(build.find('remora_server_sessions_total', {transport})) > 0;
  build.add({id: 'sessions', section: 'Service', title: 'Sessions', unit: '',
    lines: labelsOf(now, 'transport').flatMap((transport, slot) => (ever(transport)
      ? build.level(transport, slot, now.filter((one) => one.labels.transport === transport)) : [])),
    help: 'Clients connected.', empty: now.length ? 'Nobody has connected yet.' : undefined});
  const begun = build.rate('begun', 0, build.find('remora_server_sessions_total'));
  const ended = counted(build.rates(build.find('remora_server_sessions_ended_total'), 'reason'));
  build.add({id: 'begun', section: 'Service', title: 'Sessions begun and ended', unit: '/s',
    lines: [...begun, ...ended.map((line, at) => ({...line, slot: at + 1, label: `ended: ${line.label}`}))],
    help: 'Begun much faster than the number of sessions moves: clients reconnect in a loop.'});
  const requests = build.find('remora_server_control_requests_total');
  build.add({id: 'control', section: 'Service', title: 'Control requests', unit: '/s',
    lines: counted(build.rates(requests, 'request')), help: 'Answered, whatever the answer.',
    empty: requests.length ? 'No control request yet.' : undefined});
  for (const one of build.find('remora_server_control_latency_seconds')) {
    if (!(build.history.latest(one, 'count') > 0)) continue;
    build.add({id: 'control-latency', section: 'Service', title: 'Latency: control requests', unit: 's', log: true,
      lines: build.quantiles(one),
      help: 'Arrival to answer. Opening large regions over rdma pins memory: about 0.1 s a GiB.'});
  }
}

// Endings that are nobody's fault are no errors; some others have a counter of their own.
const kPeaceful = new Set(['ok', 'closed', 'left', 'stopped']);
const kCountedElsewhere = new Set([...kPeaceful, 'protocol', 'refused', 'no_hello']);

// Everything that went wrong, by one name each. `told`: what followed from it is counted, too.
export function errorLines(build) {
  const lines = [];
  const take = (label, list, told = false) => {
    lines.push(...build.rate(label, lines.length, list).map((line) => ({...line, told})));
  };
  const by = (list, label, name = words, told = false, left = kPeaceful) => {
    for (const value of labelsOf(list, label).filter((one) => !left.has(one))) {
      take(name(value), list.filter((one) => (one.labels[label] ?? '') === value), told);
    }
  };
  by(build.find('remora_client_operations_total'), 'status');
  take('lanes broken', build.find('remora_client_lanes_broken_total'), true);
  by(build.find('remora_client_lane_victims_total'), 'cause', (value) => `lane victim: ${words(value)}`, true);
  by(build.history.find('remora_client_sessions_ended_total'), 'reason', (value) => `session ended: ${words(value)}`, true);
  take('callback threw', build.find('remora_client_callback_exceptions_total'));
  by(build.find('remora_client_mr_cache_failures_total'), 'errno', (value) => `MR cache: ${value}`);
  by(build.find('remora_server_sessions_refused_total'), 'reason',
     (value) => (value ? `refused: ${words(value)}` : 'session refused'));
  take('protocol violation', build.find('remora_server_protocol_violations_total'));
  by(build.history.find('remora_server_sessions_ended_total'), 'reason', (value) => `session ended: ${words(value)}`, false,
     kCountedElsewhere);
  take('tcp refused', build.find('remora_server_tcp_refused_total'));
  take('tcp corrupt', build.find('remora_server_tcp_corrupt_total'));
  take('tcp stranger', build.find('remora_server_tcp_strangers_total'));
  by(build.find('remora_server_notifications_total'), 'status', (value) => `notice: ${value}`);
  take('control request failed', build.history.find('remora_server_control_requests_total', {status: 'error'}));
  return lines;
}

// The colour of an error is given when it first comes up, so that few share one, and kept.
const errorSlots = new Map();
function slotOf(label) {
  if (!errorSlots.has(label)) errorSlots.set(label, errorSlots.size);
  return errorSlots.get(label);
}

function errors(build) {
  const all = errorLines(build);
  if (!all.length) return;
  build.add({id: 'errors', section: 'Service', title: 'Errors by reason', unit: '/s', alarm: true,
    lines: counted(all).map((line) => ({...line, slot: slotOf(line.label)})),
    help: 'Each ended operation, session or request that was not ok, by its one reason.',
    empty: 'None since the process began.'});
}

const kNicTraffic = /pkts$|packets$|^rdma_(sends|recvs)$/;
const kNicCongestion = /cnp|ecn|wait|deferred/;

// The device's own counters: what passed the port, whoever caused it.
function nic(build) {
  const all = build.find(/^remora_nic_/);
  const ports = unique(all.map((one) => `${one.labels.device ?? 'NIC'} port ${one.labels.port ?? '1'}`));
  for (const port of ports) {
    const mine = all.filter((one) => `${one.labels.device ?? 'NIC'} port ${one.labels.port ?? '1'}` === port);
    const name = (one) => words(one.labels.direction ?? one.labels.counter ?? one.name);
    const panel = (title, unit, list, rest) => build.add({id: `nic-${port}-${title}`.replace(/[^\w-]/g, '-'), section: 'Machine',
      title: `${port}: ${title}`, unit, lines: counted(list.flatMap((one, slot) => build.rate(name(one), slot, [one]))), ...rest});
    const bytes = mine.filter((one) => /bytes/.test(one.name));
    const events = mine.filter((one) => !bytes.includes(one));
    const of = (one) => one.labels.counter ?? one.name;
    const traffic = events.filter((one) => kNicTraffic.test(of(one)));
    const congestion = events.filter((one) => !traffic.includes(one) && kNicCongestion.test(of(one)));
    const trouble = events.filter((one) => !traffic.includes(one) && !congestion.includes(one));
    panel('bytes', 'B/s', bytes, {help: 'All that passed the port, whoever caused it.'});
    panel('traffic', '/s', traffic, {help: 'Under the names that the driver gives.'});
    panel('congestion', '/s', congestion, {help: 'Pauses, marked packets and notices of congestion, under the driver’s names.'});
    panel('errors', '/s', trouble, {alarm: true, empty: trouble.length ? 'None since the device came up.' : undefined,
      help: 'Losses, retries and refusals, under the driver’s names.'});
  }
}

function processPanels(build) {
  build.add({id: 'cpu', section: 'Machine', title: 'Processor', unit: 'cores',
    lines: [...build.rate('process', 0, build.find('process_cpu_seconds_total')),
            ...build.rate('pollers', 1, build.find('remora_client_poller_cpu_seconds_total')),
            ...build.rate('tcp thread', 2, build.find('remora_server_tcp_cpu_seconds_total'))],
    help: 'One core is 1. About 1 for each polling thread is by design; more without load is not.'});
  build.add({id: 'memory', section: 'Machine', title: 'Resident memory', unit: 'B',
    lines: build.level('resident', 0, build.find('process_resident_memory_bytes')),
    help: 'The pool included.'});
  build.add({id: 'descriptors', section: 'Machine', title: 'Open descriptors', unit: '',
    lines: build.level('open', 0, build.find('process_open_fds')), help: 'Near their limit connections are refused.'});
  build.find(/^(process_max_fds|process_virtual_memory_bytes|process_start_time_seconds|remora_build_info)$/);
}

// What the application added, and what this page does not know yet.
function others(build) {
  const rest = [...build.history.series.values()].filter((one) => !build.claimed.has(one.key));
  for (const name of unique(rest.map((one) => one.name)).sort()) {
    const list = rest.filter((one) => one.name === name);
    const title = name.replace(/_total$/, '');
    const label = (one) => Object.values(one.labels).join(' ') || 'value';
    const section = 'Other series';
    if (list[0].kind === 'histogram') {
      for (const one of list) {
        const unit = /_seconds$/.test(name) ? 's' : /_bytes$/.test(name) ? 'B' : '';
        build.add({id: `other-${one.key}`, section, unit, log: unit === 's', lines: build.quantiles(one), help: name,
          title: Object.keys(one.labels).length ? `${title} ${label(one)}` : title});
      }
      continue;
    }
    const counter = list[0].kind === 'counter';
    const bytes = /_bytes(_total)?(_high_water)?$/.test(name);
    const unit = bytes ? (counter ? 'B/s' : 'B') : counter ? (/_seconds_total$/.test(name) ? 's/s' : '/s')
      : /_seconds$/.test(name) ? 's' : '';
    build.add({id: `other-${name}`, section, title, unit, help: name,
      lines: list.slice(0, 12).flatMap((one, slot) =>
        counter ? build.rate(label(one), slot, [one]) : build.level(label(one), slot, [one]))});
  }
}

// Panels in the order in which they are read: what it does, how fast, what went wrong, why.
export function definePanels(history) {
  const build = new Builder(history);
  for (const part of [clientTraffic, serverTraffic, errors, clientLatency, serverSessions, serverMemory, serverZombies,
                      clientQueues, clientSessions, mrCache, processPanels, nic, others]) part(build);
  return build.panels;
}

export const builderOf = (history) => new Builder(history);
