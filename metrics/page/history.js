// The samples that the process has kept, and what is computed from them.

const kArrays = ['values', 'count', 'sum', 'p50', 'p90', 'p99', 'p999', 'max'];

const keyOf = (name, labels) =>
    name + JSON.stringify(Object.entries(labels).sort(([a], [b]) => (a < b ? -1 : 1)));

// Times and series side by side: each array of a series is as long as `times`.
export class History {
  constructor() {
    this.clear();
  }

  clear() {
    this.process = null;
    this.next = 0;  // number of the sample that comes next
    this.periodMs = 2000;
    this.kept = 1800;  // samples that the process keeps
    this.times = [];   // Unix ms
    this.series = new Map();
  }

  get first() {
    return this.next - this.times.length;
  }
  get last() {
    return this.times.length - 1;
  }

  // Takes an answer of /history. True when it is another process's, so that all before is gone.
  apply(answer) {
    const times = Array.isArray(answer.times_ms) ? answer.times_ms : [];
    const begun = this.process !== null && this.process !== answer.process;
    if (this.process !== answer.process || answer.next < this.next) this.clear();
    this.process = answer.process;
    this.periodMs = answer.period_ms > 0 ? answer.period_ms : this.periodMs;
    // Samples that the process dropped before this page asked for them.
    if (this.times.length && answer.first > this.next) this.#drop(this.times.length);
    const skip = this.times.length ? Math.max(0, this.next - answer.first) : 0;
    const before = this.times.length;
    this.times.push(...times.slice(skip));
    for (const one of answer.series ?? []) this.#append(one, skip, before);
    for (const one of this.series.values()) {
      for (const values of one.arrays)
        while (values.length < this.times.length) values.push(null);
    }
    this.next = answer.next;
    this.kept = answer.kept > 0 ? answer.kept : this.kept;
    if (this.times.length > this.kept) this.#drop(this.times.length - this.kept);
    return begun;
  }

  #append(one, skip, before) {
    if (typeof one?.name !== 'string') return;
    const labels = one.labels ?? {};
    const key = keyOf(one.name, labels);
    let mine = this.series.get(key);
    if (!mine) {
      mine = {key, name: one.name, kind: one.kind, unit: one.unit ?? '', labels, arrays: []};
      for (const field of kArrays) {
        if (!Array.isArray(one[field])) continue;
        mine[field] = new Array(before).fill(null);
        mine.arrays.push(mine[field]);
      }
      this.series.set(key, mine);
    }
    for (const field of kArrays) {
      if (!mine[field] || !Array.isArray(one[field])) continue;
      for (let at = skip; at < one[field].length; ++at) mine[field].push(one[field][at]);
    }
  }

  #drop(count) {
    this.times.splice(0, count);
    for (const one of this.series.values()) {
      for (const values of one.arrays) values.splice(0, count);
    }
  }

  // Series whose name matches (a string is the whole name), with these labels.
  find(name, labels = {}) {
    const wanted = Object.entries(labels);
    return [...this.series.values()].filter(
        (one) => (typeof name === 'string' ? one.name === name : name.test(one.name)) &&
            wanted.every(([label, value]) => one.labels[label] === value));
  }

  // Parts of [fromMs, toMs] with as many samples each as keeps them below `rowsMax`. Their edges
  // are numbers of samples, so that a window that moves on does not redraw the past differently.
  buckets(fromMs, toMs, rowsMax) {
    const begin = lowerBound(this.times, fromMs);
    const end = lowerBound(this.times, toMs + 1);
    const wanted = (toMs - fromMs) / this.periodMs;
    const size = Math.max(1, Math.ceil(wanted / rowsMax));
    const rows = [];
    for (let at = begin; at < end;) {
      const stop = Math.min(end, at + size - ((this.first + at) % size));
      rows.push({from: at, to: stop - 1, time: this.times[stop - 1]});
      at = stop;
    }
    return rows;
  }

  // What stands for an interval: counters rise, the other two are values.
  rate(list) {
    return (from, to) => {
      if (from < 1) {
        if (to < 1) return null;
        from = 1;
      }
      const elapsedMs = this.times[to] - this.times[from - 1];
      // The process stood still, or samples are missing: no line over the gap.
      if (!(elapsedMs > 0) || elapsedMs > (to - from + 1) * this.periodMs * 4) return null;
      const rise = riseOf(list, 'values', from, to);
      return rise === null ? null : (rise * 1000) / elapsedMs;
    };
  }

  // Of each series the mean, or the highest (`worst`), and of all of them the sum.
  level(list, worst = false) {
    return (from, to) => {
      let sum = null;
      for (const one of list) {
        const value = worst ? highest(one.values, from, to) : mean(one.values, from, to);
        if (value !== null) sum = (sum ?? 0) + value;
      }
      return sum;
    };
  }

  // A field of a histogram: the worst of the intervals.
  quantile(one, field) {
    return (from, to) => highest(one[field] ?? [], from, to);
  }

  average(list) {
    return (from, to) => ratio(riseOf(list, 'sum', from, to), riseOf(list, 'count', from, to));
  }

  share(part, whole, field = 'values') {
    return (from, to) => ratio(riseOf(part, 'values', from, to), riseOf(whole, field, from, to));
  }

  // The latest value that is one.
  latest(one, field = 'values') {
    const values = one[field] ?? [];
    return values.length ? values[values.length - 1] : null;
  }

  total(list, field = 'values') {
    let sum = null;
    for (const one of list) {
      const value = this.latest(one, field);
      if (value !== null) sum = (sum ?? 0) + value;
    }
    return sum;
  }
}

function lowerBound(sorted, value) {
  let low = 0, high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] < value)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

// By how much counters rose after the sample before `from`, up to `to`.
function riseOf(list, field, from, to) {
  let sum = null;
  for (const one of list) {
    const now = one[field]?.[to] ?? null;
    const before = one[field]?.[from - 1] ?? null;
    if (now !== null && before !== null && now >= before) sum = (sum ?? 0) + now - before;
  }
  return sum;
}

function highest(values, from, to) {
  let found = null;
  for (let at = from; at <= to; ++at) {
    const value = values[at] ?? null;
    if (value !== null && (found === null || value > found)) found = value;
  }
  return found;
}

function mean(values, from, to) {
  let sum = 0, count = 0;
  for (let at = from; at <= to; ++at) {
    const value = values[at] ?? null;
    if (value !== null) sum += value, ++count;
  }
  return count ? sum / count : null;
}

const ratio = (part, whole) => (whole > 0 && part !== null ? part / whole : null);
