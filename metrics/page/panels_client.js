// What a process does with the memory of others.

import {counted, kOps, labelsOf, over} from './builder.js';

const kLatencies = [...kOps, 'atomic'];

export function clientTraffic(build) {
  const operations = build.find('remora_client_operations_total');
  if (!operations.length) return;
  const ok = operations.filter((one) => one.labels.status === 'ok');
  const transports = labelsOf(ok, 'transport');
  const lines = transports.flatMap(
      (transport, at) => kOps.flatMap(
          (op, slot) => build.rate(
              over(op, transport, transports), slot + 4 * at,
              ok.filter((one) => one.labels.op === op && one.labels.transport === transport))));
  build.add({
    id: 'operations',
    section: 'Service',
    title: 'Operations',
    unit: '/s',
    lines: counted(lines),
    help: 'Operations that were ok, by kind.',
    empty: 'No operation has ended yet.'
  });
  const bytes = [
    ['read', build.find('remora_client_read_bytes_total')],
    ['written', build.find('remora_client_written_bytes_total')]
  ];
  build.add({
    id: 'bytes',
    section: 'Service',
    title: 'Throughput',
    unit: 'B/s',
    lines: counted(bytes.flatMap(([label, list], slot) => build.rate(label, slot, list))),
    help: 'Payload of operations that were ok.',
    empty: 'No payload has been moved yet.'
  });
}

export function clientLatency(build) {
  const all = build.find('remora_client_operation_latency_seconds');
  const transports = labelsOf(all, 'transport');
  const seen =
      all.filter((one) => build.history.latest(one, 'count') > 0)
          .sort((a, b) => kLatencies.indexOf(a.labels.op) - kLatencies.indexOf(b.labels.op));
  for (const one of seen) {
    const {op, transport} = one.labels;
    build.add({
      id: `latency-${op}-${transport}`,
      section: 'Service',
      unit: 's',
      log: true,
      title: `Latency: ${over(op, transport, transports)}`,
      lines: build.quantiles(one),
      help:
          'Submission to completion, of operations that were ok. It rises with queue depth first: compare the send queue.'
    });
  }
  if (all.length && !seen.length) {
    build.add({
      id: 'latency',
      section: 'Service',
      title: 'Latency',
      unit: 's',
      lines: [],
      help: '',
      empty: 'No operation has ended yet.'
    });
  }
}

export function clientQueues(build) {
  const posted = (list) => list.filter((one) => one.labels.transport !== 'shm');
  const used = build.history.find('remora_client_operations_total');
  if (used.length > 0 && posted(used).length === 0) {
    build.add({
      id: 'queues',
      section: 'Queues and registrations',
      title: 'Queues',
      unit: '',
      lines: [],
      empty: 'Nothing is posted over shm: the caller’s thread copies, so there is no queue.'
    });
  }
  const gauge = (name, label, slot, worst) =>
      build.level(label, slot, posted(build.find(name)), worst);
  build.add({
    id: 'cq',
    section: 'Queues and registrations',
    title: 'Completion queue',
    unit: '',
    lines: [
      ...gauge('remora_client_cq_depth_high_water', 'high water', 1, true),
      ...gauge('remora_client_cq_depth', 'depth', 0),
      ...gauge('remora_client_cq_capacity', 'capacity', 2)
    ],
    help:
        'Completions that a visit found, and the most since the sample before. High water near the capacity: the application polls too seldom.'
  });
  build.add({
    id: 'queue',
    section: 'Queues and registrations',
    title: 'Send queue occupancy',
    unit: '',
    lines: [
      ...gauge('remora_client_send_queue_occupancy_high_water', 'high water', 1, true),
      ...gauge('remora_client_send_queue_occupancy', 'occupancy', 0)
    ],
    help:
        'Work requests posted and not completed, on the lane last used. At the lane’s depth: more lanes, or a deeper one.'
  });
  for (const [id, name, title, help] of [
           [
             'doorbell', 'remora_client_doorbell_work_requests', 'Work requests a doorbell',
             'Handed over by one doorbell. Near 1 under load: submit more at once.'
           ],
           [
             'poll', 'remora_client_poll_completions', 'Completions a poll',
             'Found by a visit that found any; a chain is told by one.'
           ]]) {
    const list = posted(build.find(name));
    const lines = list.length ? [{
      label: 'mean',
      slot: 0,
      at: build.history.average(list),
      total: () => build.history.total(list, 'count')
    }] :
                                [];
    if (list.length === 1) {
      lines.push(...build.quantiles(list[0], [['p50', 'p50'], ['p99', 'p99'], ['max', 'max']])
                     .map((line, at) => ({...line, slot: at + 1})));
    }
    build.add({id, section: 'Queues and registrations', title, unit: '', lines, help});
  }
  clientWorkRequests(build, posted);
  const lanes = build.find('remora_client_lanes');
  build.add({
    id: 'lanes',
    section: 'Queues and registrations',
    title: 'Lanes',
    unit: '',
    help: 'Open data paths, by transport.',
    lines: labelsOf(lanes, 'transport')
               .flatMap(
                   (transport, slot) => build.level(
                       transport || 'lanes', slot,
                       lanes.filter((one) => (one.labels.transport ?? '') === transport)))
  });
}

// Signaled and inline work requests as a share of all.
function clientWorkRequests(build, posted) {
  const all = posted(build.find('remora_client_work_requests_total'));
  const lines =
      [
        ['signaled', all.filter((one) => one.labels.kind === 'signaled')],
        ['inline', posted(build.find('remora_client_inline_work_requests_total'))]
      ]
          .flatMap(
              ([label, list], slot) =>
                  (list.length && all.length ? [{
                    label,
                    slot,
                    at: build.history.share(list, all),
                    total: () => build.history.total(list)
                  }] :
                                               []));
  build.add({
    id: 'requests',
    section: 'Queues and registrations',
    title: 'Signaled and inline',
    unit: '%',
    lines,
    help:
        'Share of the posted work requests that asked for a completion, and of those whose bytes went along.'
  });
}

export function clientSessions(build) {
  const ended = counted(build.rates(build.find('remora_client_sessions_ended_total'), 'reason'));
  build.add({
    id: 'client-sessions',
    section: 'Queues and registrations',
    title: 'Sessions begun and ended',
    unit: '/s',
    lines: [
      ...build.rate('begun', 0, build.find('remora_client_sessions_total')),
      ...ended.map((line, at) => ({...line, slot: at + 1, label: `ended: ${line.label}`}))
    ],
    help: 'Of this process, with servers. A steady rate without a reason to is a reconnect loop.'
  });
  clientReconnects(build);
}

function clientReconnects(build) {
  const interrupted = build.find('remora_client_sessions_interrupted_total');
  const resumed = build.rate('resumed', 0, build.find('remora_client_sessions_resumed_total'));
  const again = build.rate('reads again', 7, build.find('remora_client_reads_reposted_total'));
  const reasons = counted(build.rates(interrupted, 'reason'));
  build.add({
    id: 'reconnects',
    section: 'Queues and registrations',
    title: 'Sessions interrupted and resumed',
    unit: '/s',
    lines: [
      ...counted(resumed),
      ...reasons.map((line, at) => ({...line, slot: at + 1, label: `interrupted: ${line.label}`})),
      ...counted(again)
    ],
    help:
        'Lanes or a server went, and the session went on by others. Reads are carried out again, writes and atomics never.',
    empty: interrupted.length ? 'No session has been interrupted.' : undefined
  });
}

export function mrCache(build) {
  const acquires = build.find('remora_client_mr_cache_acquires_total');
  const automatic = build.find('remora_client_mr_cache_automatic');
  build.add({
    id: 'mr-acquires',
    section: 'Queues and registrations',
    title: 'MR cache',
    unit: '/s',
    lines: build.rates(acquires, 'result', ['hit', 'miss', 'refused', 'failed']),
    help:
        'Long transfers by what the cache had. Misses like operations: buffers change each time, or the budget is too small.'
  });
  build.add({
    id: 'mr-ends',
    section: 'Queues and registrations',
    title: 'Registrations made and ended',
    unit: '/s',
    lines: [
      ...build.rate('made', 7, build.find('remora_client_mr_cache_registrations_total')),
      ...counted(build.rates(
          build.find('remora_client_mr_cache_ends_total'), 'cause',
          ['evicted', 'superseded', 'unmapped', 'remapped', 'removed']))
    ],
    help: 'Evicted like misses: raise mr_cache_bytes.'
  });
  build.add({
    id: 'mr-pinned',
    section: 'Queues and registrations',
    title: 'Pinned by the MR cache',
    unit: 'B',
    lines: build.level('pinned', 0, build.find('remora_client_mr_cache_pinned_bytes')),
    help: 'In whole pages.' +
        (automatic.some((one) => build.history.latest(one) === 0) ?
             ' Changes of mappings are not noticed here, so nothing is kept: the log says why.' :
             '')
  });
  build.add({
    id: 'mr-kept',
    section: 'Queues and registrations',
    title: 'Registrations kept',
    unit: '',
    lines: build.level('kept', 0, build.find('remora_client_mr_cache_kept')),
    help: 'In use or idle.'
  });
}
