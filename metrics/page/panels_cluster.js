// A server's registration in its cluster, the volumes that a client has open, and the store of
// both.

import {counted, labelsOf} from './builder.js';
import {words} from './format.js';

const kSection = 'Cluster and volumes';
const kStates = ['ok', 'unreachable', 'lost', 'revoked'];
const kCalls = ['get', 'commit', 'lease'];

export function serverCluster(build) {
  build.add({
    id: 'registered',
    section: kSection,
    title: 'Registered in the cluster',
    unit: '',
    lines: build.level('registered', 0, build.find('remora_server_cluster_registered')),
    help: '1: the record of this server stands in the store; 0: no volume is placed on it.'
  });
  build.add({
    id: 'keep-alive',
    section: kSection,
    title: 'Since the lease was renewed',
    unit: 's',
    lines: build.level('age', 0, build.find('remora_server_cluster_keep_alive_age_seconds'), true),
    help: 'Renewed each 3 s. After 10 s the record is gone from the store.'
  });
}

export function clientVolumes(build) {
  const groups = build.find('remora_client_volume_groups');
  const known = labelsOf(groups, 'state');
  build.add({
    id: 'volume-groups',
    section: kSection,
    title: 'Groups of open volumes',
    unit: '',
    lines: [...kStates, ...known.filter((state) => !kStates.includes(state))].flatMap(
        (state, slot) =>
            build.level(state, slot, groups.filter((one) => one.labels.state === state), true)),
    help: 'Lost: the server has other memory. An idle volume finds out by its next operation.'
  });
  build.add({
    id: 'volumes',
    section: kSection,
    title: 'Open volumes',
    unit: '',
    lines: build.level('volumes', 0, build.find('remora_client_volumes')),
    help: 'Their operations are counted as those of regions, each part once.'
  });
  build.add({
    id: 'volume-revision',
    section: kSection,
    title: 'Metadata revision',
    unit: '',
    lines: build.level('revision', 0, build.find('remora_client_volume_metadata_revision')),
    help: 'At the last change of a volume’s records, as it was opened; the lowest of all volumes.'
  });
}

export function clusterStore(build) {
  const all = build.find('remora_cluster_store_latency_seconds');
  const calls = all.filter((one) => build.history.latest(one, 'count') > 0)
                    .sort((a, b) => kCalls.indexOf(a.labels.op) - kCalls.indexOf(b.labels.op));
  for (const one of calls) {
    build.add({
      id: `store-${one.labels.store}-${one.labels.op}`,
      section: kSection,
      title: `Latency: ${one.labels.op} (${one.labels.store})`,
      unit: 's',
      log: true,
      lines: build.quantiles(one),
      help: 'Of calls to the cluster’s store that were answered.'
    });
  }
  const errors = build.find('remora_cluster_store_errors_total');
  const name = (op, reason) => `${op}: ${words(reason)}`;
  build.add({
    id: 'store-errors',
    section: kSection,
    title: 'Store errors',
    unit: '/s',
    alarm: true,
    lines: counted(labelsOf(errors, 'op')
                       .flatMap(
                           (op, first) => labelsOf(errors, 'reason')
                                              .flatMap(
                                                  (reason, slot) => build.rate(
                                                      name(op, reason), first * 6 + slot,
                                                      errors.filter(
                                                          (one) => one.labels.op === op &&
                                                              one.labels.reason === reason))))),
    empty: errors.length ? 'None since the process began.' : undefined,
    help: 'Calls that failed, or whose outcome is not known.'
  });
}
