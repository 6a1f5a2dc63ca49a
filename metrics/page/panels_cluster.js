// A server's registration in its cluster, the volumes that a client has open, and the store of
// both.

import {counted, labelsOf} from './builder.js';
import {words} from './format.js';

const kSection = 'Cluster and volumes';
const kStates = ['ok', 'unreachable', 'lost', 'revoked'];
const kMirrorStates = ['in_sync', 'degraded', 'promoting', 'lost', 'unadopted'];
const kCopies = ['zones', 'members'];
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

export function clientMirrors(build) {
  const groups = build.find('remora_client_mirror_groups');
  build.add({
    id: 'mirror-groups',
    section: kSection,
    title: 'Groups of mirrors',
    unit: '',
    lines: kMirrorStates.flatMap(
        (state, slot) => build.level(
            words(state), slot, groups.filter((one) => one.labels.state === state), true)),
    help: 'Of the mirrors that this process has claimed. Degraded: fewer copies than wanted.'
  });
  const left = build.find('remora_client_mirror_resync_bytes');
  build.add({
    id: 'mirror-left',
    section: kSection,
    title: 'To copy in mirrors',
    unit: 'B',
    lines: kCopies.flatMap(
        (kind, slot) =>
            build.level(kind, slot, left.filter((one) => one.labels.kind === kind), true)),
    help: 'Zones that members may have unequal; members that are being built.'
  });
  const copied = build.find('remora_client_mirror_copied_bytes_total');
  build.add({
    id: 'mirror-copied',
    section: kSection,
    title: 'Copied in mirrors',
    unit: 'B/s',
    lines: kCopies.flatMap(
        (kind, slot) => build.rate(kind, slot, copied.filter((one) => one.labels.kind === kind))),
    help: 'By the writer, from the primary of a group to its other members.'
  });
  const removed = build.find('remora_client_mirror_members_removed_total');
  build.add({
    id: 'mirror-removed',
    section: kSection,
    title: 'Members removed',
    unit: '/s',
    alarm: true,
    lines: counted(
        labelsOf(removed, 'cause')
            .flatMap(
                (cause, slot) => build.rate(
                    words(cause), slot, removed.filter((one) => one.labels.cause === cause)))),
    empty: removed.length ? 'None since the process began.' : undefined,
    help: 'Each leaves its group with a copy less.'
  });
  for (const one of build.find('remora_client_mirror_confirmation_latency_seconds')
           .filter((one) => build.history.latest(one, 'count') > 0)) {
    build.add({
      id: 'mirror-confirmations',
      section: kSection,
      title: 'Latency: confirmations',
      unit: 's',
      log: true,
      lines: build.quantiles(one),
      help: 'Requests to the store that allow reads of a group for 2 s.'
    });
  }
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
