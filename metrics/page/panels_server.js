// Memory of a server, its clients, and its work for them.

import {counted, kOps, labelsOf} from './builder.js';

export function serverMemory(build) {
  const pool = build.find('remora_server_pool_bytes');
  const states = ['used', 'freeing', 'orphaned', 'free'];
  const known = labelsOf(pool, 'state');
  build.add({
    id: 'pool',
    section: 'Service',
    title: 'Pool',
    unit: 'B',
    stacked: true,
    lines: [...states, ...known.filter((state) => !states.includes(state))]
               .flatMap(
                   (state, slot) =>
                       build.level(state, slot, pool.filter((one) => one.labels.state === state)))
               .reverse(),  // used at the bottom
    help: 'Memory of the pool, by what it is; freeing is being zeroed. Free near 0: creating fails.'
  });
  build.add({
    id: 'regions',
    section: 'Service',
    title: 'Regions and grants',
    unit: '',
    lines: [
      ...build.level('regions', 0, build.find('remora_server_regions')),
      ...build.level('open', 1, build.find('remora_server_grants'))
    ],
    help: 'Regions that exist, and how often they are open over all sessions.'
  });
}

// Memory of removed regions that a client process still maps.
export function serverOrphans(build) {
  const orphaned = build.find('remora_server_orphaned_bytes');
  if (!orphaned.some((one) => one.values.some((value) => value > 0))) return;
  build.add({
    id: 'orphaned-mappings',
    section: 'Service',
    title: 'Removed and still mapped',
    unit: 'B',
    lines: build.level('orphaned', 0, orphaned),
    help:
        'Of removed regions, what clients over shm still hold; the memory comes back when they let go.'
  });
}

export function serverTraffic(build) {
  const operations = build.find('remora_server_tcp_operations_total');
  const bytes = build.find('remora_server_tcp_bytes_total');
  if (!build.history.find(/^remora_server_/).length) return;
  const empty =
      'Nothing was served over tcp. Over rdma and shm clients reach the memory themselves: their own pages show it.';
  build.add({
    id: 'served',
    section: 'Service',
    title: 'Operations served over tcp',
    unit: '/s',
    empty,
    lines: counted(build.rates(operations, 'op', kOps)),
    help: 'Over rdma and shm the server takes part in none.'
  });
  build.add({
    id: 'served-bytes',
    section: 'Service',
    title: 'Throughput over tcp',
    unit: 'B/s',
    empty,
    lines: counted(build.rates(bytes, 'op', kOps)),
    help: 'Near what a core copies (4 GB/s): a thread that serves tcp is the limit.'
  });
}

export function serverSessions(build) {
  const now = build.find('remora_server_sessions');
  const ever = (transport) =>
      build.history.total(build.find('remora_server_sessions_total', {transport})) > 0;
  build.add({
    id: 'sessions',
    section: 'Service',
    title: 'Sessions',
    unit: '',
    lines: labelsOf(now, 'transport')
               .flatMap(
                   (transport, slot) =>
                       (ever(transport) ?
                            build.level(
                                transport, slot,
                                now.filter((one) => one.labels.transport === transport)) :
                            [])),
    help: 'Clients connected.',
    empty: now.length ? 'No client has connected yet.' : undefined
  });
  const begun = build.rate('begun', 0, build.find('remora_server_sessions_total'));
  const ended = counted(build.rates(build.find('remora_server_sessions_ended_total'), 'reason'));
  build.add({
    id: 'begun',
    section: 'Service',
    title: 'Sessions begun and ended',
    unit: '/s',
    lines: [
      ...begun, ...ended.map((line, at) => ({...line, slot: at + 1, label: `ended: ${line.label}`}))
    ],
    help: 'Begun much faster than the number of sessions moves: clients reconnect in a loop.'
  });
  const requests = build.find('remora_server_control_requests_total');
  build.add({
    id: 'control',
    section: 'Service',
    title: 'Control requests',
    unit: '/s',
    lines: [
      ...counted(build.rates(requests, 'request')),
      ...counted(build.rate('delayed', 8, build.find('remora_server_requests_delayed_total')))
    ],
    help: 'Answered, whatever the answer. Delayed: for limits.requests_per_second.',
    empty: requests.length ? 'No control request yet.' : undefined
  });
  for (const one of build.find('remora_server_control_latency_seconds')) {
    if (!(build.history.latest(one, 'count') > 0)) continue;
    build.add({
      id: 'control-latency',
      section: 'Service',
      title: 'Latency: control requests',
      unit: 's',
      log: true,
      lines: build.quantiles(one),
      help: 'Arrival to answer. Opening large regions over rdma pins memory: about 0.1 s a GiB.'
    });
  }
}
