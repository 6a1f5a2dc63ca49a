// What panels are made of. All of it follows from the series that the process has: a panel without
// series is left out, or says in one line why it is empty.
//
// panel: {id, section, title, unit, help, lines, log?, stacked?, alarm?, empty?}; `alarm`: its
// lines
//        should be 0, and only those that are not are named
// line:  {label, slot, at(from, to), total?, dash?}; `slot` is its colour, for good

import {words} from './format.js';

export const kOps = ['read', 'write', 'cas', 'add'];
const kQuantiles =
    [['p50', 'p50'], ['p90', 'p90'], ['p99', 'p99'], ['p999', 'p99.9'], ['max', 'max']];

export const unique = (list) => [...new Set(list)];
export const labelsOf = (list, label) => unique(list.map((one) => one.labels[label] ?? ''));

// Collects panels, and which series they show. A series that no panel has taken is shown as it is.
export class Builder {
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
    return list.length ?
        [{label, slot, at: this.history.rate(list), total: () => this.history.total(list)}] :
        [];
  }

  level(label, slot, list, worst = false) {
    return list.length ?
        [{label, slot, at: this.history.level(list, worst), now: () => this.history.total(list)}] :
        [];
  }

  // One line for each value of a label.
  rates(list, label, order = []) {
    const values = labelsOf(list, label);
    const sorted = [
      ...order.filter((value) => values.includes(value)),
      ...values.filter((value) => !order.includes(value))
    ];
    return sorted.flatMap(
        (value, slot) => this.rate(
            words(value), slot, list.filter((one) => (one.labels[label] ?? '') === value)));
  }

  quantiles(one, fields = kQuantiles) {
    return fields.map(([field, label], slot) => ({
                        label,
                        slot,
                        at: this.history.quantile(one, field),
                        total: field === 'max' ? undefined : () => this.history.latest(one, 'count')
                      }));
  }
}

// "read", or "read over tcp" when there is more than one transport.
export const over = (name, transport, all) =>
    (all.length > 1 && transport ? `${name} over ${transport}` : name);

// A line that has counted nothing since the process began only takes room.
export const counted = (lines) => lines.filter((line) => line.total() > 0);
