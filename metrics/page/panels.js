// Which charts there are, and what each draws. All of it follows from the series that the process
// has: a panel without series is left out, or says in one line why it is empty.
//
// panel: {id, section, title, unit, help, lines, log?, stacked?, empty?}
// line:  {label, slot, at(from, to), total?, dash?}; `slot` is its colour, for good

import {words} from './format.js';

const kOps = ['read', 'write', 'cas', 'add'];
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
  build.add({id: 'operations', section: 'Traffic', title: 'Operations', unit: '/s', lines: counted(lines),
    help: 'Operations that were ok, by kind.', empty: 'No operation has ended yet.'});
  const bytes = [['read', build.find('remora_client_read_bytes_total')],
                 ['written', build.find('remora_client_written_bytes_total')]];
  build.add({id: 'bytes', section: 'Traffic', title: 'Throughput', unit: 'B/s',
    lines: counted(bytes.flatMap(([label, list], slot) => build.rate(label, slot, list))),
    help: 'Payload of operations that were ok.', empty: 'No payload has been moved yet.'});
}

function clientLatency(build) {
  const all = build.find('remora_client_operation_latency_seconds');
  const transports = labelsOf(all, 'transport');
  const seen = all.filter((one) => build.history.latest(one, 'count') > 0)
    .sort((a, b) => kOps.indexOf(a.labels.op) - kOps.indexOf(b.labels.op));
  for (const one of seen) {
    const {op, transport} = one.labels;
    build.add({id: `latency-${op}-${transport}`, section: 'Latency', unit: 's', log: true,
      title: `Latency: ${over(op, transport, transports)}`, lines: build.quantiles(one),
      help: 'Submission to completion, of operations that were ok. It rises with queue depth first: compare the send queue.'});
  }
  if (all.length && !seen.length) {
    build.add({id: 'latency', section: 'Latency', title: 'Latency', unit: 's', lines: [], help: '',
      empty: 'No operation has ended yet.'});
  }
}

function clientQueues(build) {
  const posted = (list) => list.filter((one) => one.labels.transport !== 'shm');
  const nothing = 'Nothing is posted over shm: the caller’s thread copies, so there is no queue.';
  const depth = build.find('remora_client_cq_depth');
  const onlyShm = depth.length > 0 && posted(depth).length === 0;
  const empty = onlyShm ? nothing : '';
  const gauge = (name, label, slot, worst) => build.level(label, slot, posted(build.find(name)), worst);
  build.add({id: 'cq', section: 'Queues', title: 'Completion queue', unit: '', empty,
    lines: [...gauge('remora_client_cq_depth_high_water', 'high water', 1, true),
            ...gauge('remora_client_cq_depth', 'depth', 0),
            ...gauge('remora_client_cq_capacity', 'capacity', 2)],
    help: 'Completions that a visit found, and the most since the sample before. High water near the capacity: the application polls too seldom.'});
  build.add({id: 'queue', section: 'Queues', title: 'Send queue occupancy', unit: '', empty,
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
    build.add({id, section: 'Queues', title, unit: '', lines, empty, help});
  }
  clientWorkRequests(build, posted);
  const lanes = build.find('remora_client_lanes');
  build.add({id: 'lanes', section: 'Queues', title: 'Lanes', unit: '', help: 'Open data paths, by transport.',
    lines: labelsOf(lanes, 'transport').flatMap((transport, slot) =>
      build.level(transport || 'lanes', slot, lanes.filter((one) => (one.labels.transport ?? '') === transport)))});
}

// Signaled and inline work requests as a share of those that doorbells handed over.
function clientWorkRequests(build, posted) {
  const doorbells = posted(build.history.find('remora_client_doorbell_work_requests'));
  const lines = [['signaled', /^remora_client_.*signaled.*_total$/], ['inline', /^remora_client_.*inline.*_total$/]]
    .flatMap(([label, name], slot) => {
      const list = posted(build.find(name));
      return list.length && doorbells.length
        ? [{label, slot, at: build.history.share(list, doorbells, 'sum'),
            total: () => build.history.total(list)}] : [];
    });
  build.add({id: 'requests', section: 'Queues', title: 'Signaled and inline', unit: '%', lines,
    help: 'Share of the posted work requests that asked for a completion, and of those whose bytes went along.'});
}

function mrCache(build) {
  const acquires = build.find('remora_client_mr_cache_acquires_total');
  const empty = acquires.length ? '' : undefined;
  const automatic = build.find('remora_client_mr_cache_automatic');
  build.add({id: 'mr-acquires', section: 'Memory registrations', title: 'MR cache', unit: '/s', empty,
    lines: build.rates(acquires, 'result', ['hit', 'miss', 'refused', 'failed']),
    help: 'Long transfers by what the cache had. Misses like operations: buffers change each time, or the budget is too small.'});
  build.add({id: 'mr-ends', section: 'Memory registrations', title: 'Registrations made and ended', unit: '/s',
    lines: [...build.rate('made', 7, build.find('remora_client_mr_cache_registrations_total')),
            ...counted(build.rates(build.find('remora_client_mr_cache_ends_total'), 'cause',
              ['evicted', 'superseded', 'unmapped', 'remapped', 'removed']))],
    help: 'Evicted like misses: raise mr_cache_bytes.'});
  build.add({id: 'mr-pinned', section: 'Memory registrations', title: 'Pinned by the MR cache', unit: 'B',
    lines: build.level('pinned', 0, build.find('remora_client_mr_cache_pinned_bytes')),
    help: 'In whole pages.' + (automatic.some((one) => build.history.latest(one) === 0)
      ? ' Changes of mappings are not noticed here, so nothing is kept: the log says why.' : '')});
  build.add({id: 'mr-kept', section: 'Memory registrations', title: 'Registrations kept', unit: '',
    lines: build.level('kept', 0, build.find('remora_client_mr_cache_kept')), help: 'In use or idle.'});
}

function serverMemory(build) {
  const pool = build.find('remora_server_pool_bytes');
  const states = ['used', 'freeing', 'zombie', 'free'];
  const known = labelsOf(pool, 'state');
  build.add({id: 'pool', section: 'Memory', title: 'Pool', unit: 'B', stacked: true,
    lines: [...states, ...known.filter((state) => !states.includes(state))].flatMap((state, slot) =>
      build.level(state, slot, pool.filter((one) => one.labels.state === state))),
    help: 'Memory lent, by what it is; freeing is being zeroed. Free near 0: creating fails.'});
  build.add({id: 'regions', section: 'Memory', title: 'Regions and grants', unit: '',
    lines: [...build.level('regions', 0, build.find('remora_server_regions')),
            ...build.level('open', 1, build.find('remora_server_grants'))],
    help: 'Regions that exist, and how often they are open over all sessions.'});
}

function serverTraffic(build) {
  const operations = build.find('remora_server_tcp_operations_total');
  const bytes = build.find('remora_server_tcp_bytes_total');
  if (!build.history.find(/^remora_server_/).length) return;
  const empty = 'Nothing was served over tcp. Over rdma and shm clients reach the memory themselves: their own pages show it.';
  build.add({id: 'served', section: 'Traffic', title: 'Operations served over tcp', unit: '/s', empty,
    lines: counted(build.rates(operations, 'op', kOps)), help: 'Over rdma and shm the server takes part in none.'});
  build.add({id: 'served-bytes', section: 'Traffic', title: 'Throughput over tcp', unit: 'B/s', empty,
    lines: counted(build.rates(bytes, 'op', kOps)),
    help: 'Near what a core copies (4 GB/s): the thread that serves tcp is the limit.'});
}

function serverSessions(build) {
  const now = build.find('remora_server_sessions');
  build.add({id: 'sessions', section: 'Sessions', title: 'Sessions', unit: '',
    lines: labelsOf(now, 'transport').flatMap((transport, slot) =>
      build.level(transport, slot, now.filter((one) => one.labels.transport === transport))),
    help: 'Clients connected.'});
  const begun = build.rate('begun', 0, build.find('remora_server_sessions_total'));
  const ended = counted(build.rates(build.find(/^remora_server_sessions_ended.*_total$/), 'reason'));
  build.add({id: 'begun', section: 'Sessions', title: 'Sessions begun and ended', unit: '/s',
    lines: [...begun, ...ended.map((line, at) => ({...line, slot: at + 1, label: `ended: ${line.label}`}))],
    help: 'Begun much faster than the number of sessions moves: clients reconnect in a loop.'});
  const requests = build.find('remora_server_control_requests_total');
  build.add({id: 'control', section: 'Sessions', title: 'Control requests', unit: '/s',
    lines: counted(build.rates(requests, 'request')), help: 'Answered, whatever the answer.',
    empty: requests.length ? 'No control request yet.' : undefined});
  for (const one of build.find('remora_server_control_latency_seconds')) {
    if (!(build.history.latest(one, 'count') > 0)) continue;
    build.add({id: 'control-latency', section: 'Latency', title: 'Latency: control requests', unit: 's', log: true,
      lines: build.quantiles(one),
      help: 'Arrival to answer. Opening large regions over rdma pins memory: about 0.1 s a GiB.'});
  }
}

// Endings that are nobody's fault are no errors.
const kPeaceful = new Set(['ok', 'closed', 'left', 'client', 'goodbye', 'bye', 'drained', 'stopped', 'shutdown']);

// Everything that went wrong, by one name each.
export function errorLines(build) {
  const lines = [];
  const take = (label, list) => {
    const of = build.rate(label, lines.length, list);
    lines.push(...of);
  };
  const by = (list, label, name = words) => {
    for (const value of labelsOf(list, label).filter((one) => !kPeaceful.has(one))) {
      take(name(value), list.filter((one) => one.labels[label] === value));
    }
  };
  by(build.find('remora_client_operations_total'), 'status');
  take('lanes broken', build.find('remora_client_lanes_broken_total'));
  take('lane victims', build.find(/^remora_client_lane.*victims_total$/));
  take('callback threw', build.find('remora_client_callback_exceptions_total'));
  by(build.find('remora_client_mr_cache_failures_total'), 'errno', (value) => `MR cache: ${value}`);
  take('session refused', build.find('remora_server_sessions_refused_total'));
  take('protocol violation', build.find('remora_server_protocol_violations_total'));
  by(build.history.find(/^remora_server_sessions_ended.*_total$/), 'reason', (value) => `session ended: ${words(value)}`);
  take('tcp refused', build.find('remora_server_tcp_refused_total'));
  take('tcp corrupt', build.find('remora_server_tcp_corrupt_total'));
  take('tcp stranger', build.find('remora_server_tcp_strangers_total'));
  by(build.find('remora_server_notifications_total'), 'status', (value) => `notice: ${value}`);
  take('control request failed', build.history.find('remora_server_control_requests_total', {status: 'error'}));
  return lines;
}

function errors(build) {
  const all = errorLines(build);
  if (!all.length) return;
  build.add({id: 'errors', section: 'Errors', title: 'Errors by reason', unit: '/s', lines: counted(all), alarm: true,
    help: 'Each ended operation, session or request that was not ok, by its one reason.',
    empty: 'None since the process began.'});
}

const kNicTrouble = /err|drop|discard|nak|retry|retrans|timeout|out_of|corrupt|dup|rollover|overrun|wait|exceeded/;

function nic(build) {
  const all = build.find(/^remora_nic_/);
  for (const device of labelsOf(all, 'device')) {
    for (const port of labelsOf(all.filter((one) => one.labels.device === device), 'port')) {
      const mine = all.filter((one) => one.labels.device === device && (one.labels.port ?? '') === port);
      const name = port ? `${device} port ${port}` : device;
      const counter = (one) => one.labels.counter ?? one.name.replace(/^remora_nic_|_total$/g, '');
      const panel = (id, title, list, unit, rest) => build.add({id: `nic-${device}-${port}-${id}`, section: 'NIC', unit, title,
        lines: counted(list.flatMap((one, slot) => build.rate(words(counter(one)), slot, [one]))), ...rest});
      const trouble = mine.filter((one) => kNicTrouble.test(counter(one)));
      const bytes = mine.filter((one) => !trouble.includes(one) && (/bytes/.test(one.name) || /bytes|octets/.test(counter(one))));
      panel('bytes', `${name}: bytes`, bytes, 'B/s', {help: 'What passed the port, whoever caused it.'});
      panel('traffic', `${name}: traffic`, mine.filter((one) => !trouble.includes(one) && !bytes.includes(one)), '/s',
        {help: 'The device’s own counters, in its own units.'});
      panel('trouble', `${name}: errors`, trouble, '/s', {alarm: true,
        help: 'The device’s own counters of retries, drops and errors.', empty: 'None since the device came up.'});
    }
  }
}

function processPanels(build) {
  build.add({id: 'cpu', section: 'Process', title: 'Processor', unit: 'cores',
    lines: [...build.rate('process', 0, build.find('process_cpu_seconds_total')),
            ...build.rate('pollers', 1, build.find('remora_client_poller_cpu_seconds_total'))],
    help: 'One core is 1. About 1 for each polling thread is by design; more without load is not.'});
  build.add({id: 'memory', section: 'Process', title: 'Resident memory', unit: 'B',
    lines: build.level('resident', 0, build.find('process_resident_memory_bytes')),
    help: 'The pool included.'});
  build.add({id: 'descriptors', section: 'Process', title: 'Open descriptors', unit: '',
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
  for (const part of [clientTraffic, serverTraffic, clientLatency, errors, clientQueues, serverMemory, serverSessions,
                      mrCache, nic, processPanels, others]) part(build);
  return build.panels;
}

export const builderOf = (history) => new Builder(history);
