// Which charts there are: those of clients, of servers, and of any process.

import {Builder, counted, unique} from './builder.js';
import {errors} from './errors.js';
import {words} from './format.js';
import {clientLatency, clientQueues, clientSessions, clientTraffic, mrCache} from './panels_client.js';
import {clientMirrors, clientVolumes, clusterStore, serverCluster} from './panels_cluster.js';
import {serverMemory, serverOrphans, serverSessions, serverTraffic} from './panels_server.js';

const kNicTraffic = /pkts$|packets$|^rdma_(sends|recvs)$/;
const kNicCongestion = /cnp|ecn|wait|deferred/;

// The device's own counters: what passed the port, of all its users.
function nic(build) {
  const all = build.find(/^remora_nic_/);
  const ports =
      unique(all.map((one) => `${one.labels.device ?? 'NIC'} port ${one.labels.port ?? '1'}`));
  for (const port of ports) {
    const mine = all.filter(
        (one) => `${one.labels.device ?? 'NIC'} port ${one.labels.port ?? '1'}` === port);
    const name = (one) => words(one.labels.direction ?? one.labels.counter ?? one.name);
    const panel = (title, unit, list, rest) => build.add({
      id: `nic-${port}-${title}`.replace(/[^\w-]/g, '-'),
      section: 'Machine',
      title: `${port}: ${title}`,
      unit,
      lines: counted(list.flatMap((one, slot) => build.rate(name(one), slot, [one]))),
      ...rest
    });
    const bytes = mine.filter((one) => /bytes/.test(one.name));
    const events = mine.filter((one) => !bytes.includes(one));
    const of = (one) => one.labels.counter ?? one.name;
    const traffic = events.filter((one) => kNicTraffic.test(of(one)));
    const congestion =
        events.filter((one) => !traffic.includes(one) && kNicCongestion.test(of(one)));
    const trouble = events.filter((one) => !traffic.includes(one) && !congestion.includes(one));
    panel('bytes', 'B/s', bytes, {help: 'All that passed the port, of all its users.'});
    panel('traffic', '/s', traffic, {help: 'Under the names that the driver gives.'});
    panel(
        'congestion', '/s', congestion,
        {help: 'Pauses, marked packets and notices of congestion, under the driver’s names.'});
    panel('errors', '/s', trouble, {
      alarm: true,
      empty: trouble.length ? 'None since the device came up.' : undefined,
      help: 'Losses, retries and refusals, under the driver’s names.'
    });
  }
}

function processPanels(build) {
  build.add({
    id: 'cpu',
    section: 'Machine',
    title: 'Processor',
    unit: 'cores',
    lines: [
      ...build.rate('process', 0, build.find('process_cpu_seconds_total')),
      ...build.rate('pollers', 1, build.find('remora_client_poller_cpu_seconds_total')),
      ...build.rate('tcp threads', 2, build.find('remora_server_tcp_cpu_seconds_total'))
    ],
    help: 'One core is 1. About 1 for each polling thread is by design; more without load is not.'
  });
  build.add({
    id: 'memory',
    section: 'Machine',
    title: 'Resident memory',
    unit: 'B',
    lines: build.level('resident', 0, build.find('process_resident_memory_bytes')),
    help: 'The pool included.'
  });
  build.add({
    id: 'descriptors',
    section: 'Machine',
    title: 'Open descriptors',
    unit: '',
    lines: build.level('open', 0, build.find('process_open_fds')),
    help: 'Near their limit connections are refused.'
  });
  build.find(
      /^(process_max_fds|process_virtual_memory_bytes|process_start_time_seconds|remora_build_info)$/);
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
        build.add({
          id: `other-${one.key}`,
          section,
          unit,
          log: unit === 's',
          lines: build.quantiles(one),
          help: name,
          title: Object.keys(one.labels).length ? `${title} ${label(one)}` : title
        });
      }
      continue;
    }
    const counter = list[0].kind === 'counter';
    const bytes = /_bytes(_total)?(_high_water)?$/.test(name);
    const unit = bytes         ? (counter ? 'B/s' : 'B') :
        counter                ? (/_seconds_total$/.test(name) ? 's/s' : '/s') :
        /_seconds$/.test(name) ? 's' :
                                 '';
    build.add({
      id: `other-${name}`,
      section,
      title,
      unit,
      help: name,
      lines: list.slice(0, 12).flatMap(
          (one, slot) =>
              counter ? build.rate(label(one), slot, [one]) : build.level(label(one), slot, [one]))
    });
  }
}

// Panels in the order in which they are read: what it does, how fast, what went wrong, why.
export function definePanels(history) {
  const build = new Builder(history);
  for (const part
           of [clientTraffic, serverTraffic, errors, clientLatency, serverSessions, serverMemory,
               serverOrphans, serverCluster, clientVolumes, clientMirrors, clusterStore,
               clientQueues, clientSessions, mrCache, processPanels, nic, others])
    part(build);
  return build.panels;
}
