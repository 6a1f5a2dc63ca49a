// What went wrong, by reason.

import {counted, labelsOf} from './builder.js';
import {words} from './format.js';

// Endings that are no fault are no errors; some others have a counter of their own.
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
  by(build.find('remora_client_lane_victims_total'), 'cause',
     (value) => `lane victim: ${words(value)}`, true);
  by(build.history.find('remora_client_sessions_ended_total'), 'reason',
     (value) => `session ended: ${words(value)}`, true);
  take('callback threw', build.find('remora_client_callback_exceptions_total'));
  by(build.find('remora_client_mr_cache_failures_total'), 'errno', (value) => `MR cache: ${value}`);
  by(build.find('remora_server_sessions_refused_total'), 'reason',
     (value) => (value ? `refused: ${words(value)}` : 'session refused'));
  take('protocol violation', build.find('remora_server_protocol_violations_total'));
  by(build.history.find('remora_server_sessions_ended_total'), 'reason',
     (value) => `session ended: ${words(value)}`, false, kCountedElsewhere);
  take('tcp refused', build.find('remora_server_tcp_refused_total'));
  take('tcp corrupt', build.find('remora_server_tcp_corrupt_total'));
  take('tcp rejected', build.find('remora_server_tcp_rejected_connections_total'));
  take('rdma rejected', build.find('remora_server_rdma_rejected_connections_total'));
  by(build.find('remora_server_notifications_total'), 'status', (value) => `notice: ${value}`);
  by(build.find('remora_server_cluster_errors_total'), 'reason',
     (value) => `registration: ${words(value)}`);
  take(
      'control request failed',
      build.history.find('remora_server_control_requests_total', {status: 'error'}));
  return lines;
}

// The colour of an error is given when it first comes up, so that few share one, and kept.
const errorSlots = new Map();
function slotOf(label) {
  if (!errorSlots.has(label)) errorSlots.set(label, errorSlots.size);
  return errorSlots.get(label);
}

export function errors(build) {
  const all = errorLines(build);
  if (!all.length) return;
  build.add({
    id: 'errors',
    section: 'Service',
    title: 'Errors by reason',
    unit: '/s',
    alarm: true,
    lines: counted(all).map((line) => ({...line, slot: slotOf(line.label)})),
    help: 'Each ended operation, session or request that was not ok, by its one reason.',
    empty: 'None since the process began.'
  });
}
