// Numbers, durations and axis ticks as people read them.

export const kNone = '–';

const kSi = ['', ' k', ' M', ' G', ' T', ' P'];
const kBinary = [' B', ' KiB', ' MiB', ' GiB', ' TiB', ' PiB'];

// Three significant digits, never an exponent.
function digits(value) {
  const size = Math.abs(value);
  if (size >= 100 || Number.isInteger(value)) return value.toFixed(0);
  if (size >= 10) return value.toFixed(1);
  if (size >= 0.1) return value.toFixed(2);
  return String(Number(value.toPrecision(2)));
}

function scaled(value, base, suffixes) {
  let power = 0;
  while (Math.abs(value) >= base * 0.9995 && power + 1 < suffixes.length) {
    value /= base;
    ++power;
  }
  return digits(value) + suffixes[power];
}

function seconds(value) {
  const size = Math.abs(value);
  if (size === 0) return '0';
  if (size < 0.9995e-6) return `${digits(value * 1e9)} ns`;
  if (size < 0.9995e-3) return `${digits(value * 1e6)} µs`;
  if (size < 0.9995) return `${digits(value * 1e3)} ms`;
  return `${digits(value)} s`;
}

// `unit`: 'B', 'B/s', 's', '%' (of 1), '/s', 'cores', or '' for a count.
export function format(value, unit) {
  if (value === null || value === undefined || !Number.isFinite(value)) return kNone;
  switch (unit) {
    case 'B':
      return scaled(value, 1024, kBinary);
    case 'B/s':
      return `${scaled(value, 1024, kBinary)}/s`;
    case 's':
      return seconds(value);
    case '%':
      return `${digits(value * 100)} %`;
    case '/s':
      return `${scaled(value, 1000, kSi)}/s`;
    case '':
      return scaled(value, 1000, kSi);
    case 'cores':
      return `${value.toFixed(2)} cores`;
    default:
      return `${scaled(value, 1000, kSi)} ${unit}`;
  }
}

// A whole number with all of its digits, in groups.
export function exact(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return kNone;
  return value.toLocaleString('en-US', {maximumFractionDigits: 3});
}

export function duration(total) {
  if (total === null || total === undefined || !Number.isFinite(total)) return kNone;
  const whole = Math.floor(total);
  const parts = [[86400, 'd'], [3600, 'h'], [60, 'min'], [1, 's']];
  const first = parts.findIndex(([size]) => whole >= size);
  if (first < 0) return '0 s';
  const [size, name] = parts[first];
  const text = `${Math.floor(whole / size)} ${name}`;
  if (first + 1 >= parts.length) return text;
  const [next, nextName] = parts[first + 1];
  const rest = Math.floor((whole % size) / next);
  return rest ? `${text} ${rest} ${nextName}` : text;
}

export function clock(timeMs) {
  const time = new Date(timeMs);
  const two = (value) => String(value).padStart(2, '0');
  return `${two(time.getHours())}:${two(time.getMinutes())}:${two(time.getSeconds())}`;
}

// "UTC+2": what the clock on this page means.
export function zone() {
  const minutes = -new Date().getTimezoneOffset();
  if (minutes === 0) return 'UTC';
  const hours = Math.floor(Math.abs(minutes) / 60);
  const rest = Math.abs(minutes) % 60;
  return `UTC${minutes > 0 ? '+' : '−'}${hours}${rest ? `:${String(rest).padStart(2, '0')}` : ''}`;
}

// timed_out -> timed out
export const words = (name) => String(name).replaceAll('_', ' ');

// Values of about `count` ticks from `low` to `high`: 1, 2, 5 times a power of ten; of bytes,
// powers of two.
export function linearTicks(low, high, count, unit) {
  const span = high - low;
  if (!(span > 0) || !Number.isFinite(span)) return [low];
  const rough = span / Math.max(1, count);
  const magnitude = 10 ** Math.floor(Math.log10(rough));
  const step = unit.startsWith('B') && rough > 1 ?
      2 ** Math.ceil(Math.log2(rough)) :
      [1, 2, 5, 10]
              .map((factor) => factor * magnitude)
              .find((size) => size >= rough && (unit !== '' || size >= 1)) ??
          1;
  const ticks = [];
  for (let at = Math.ceil(low / step - 1e-9); at * step <= high * (1 + 1e-9); ++at)
    ticks.push(at * step);
  return ticks;
}

// Powers of ten, with 2 and 5 times them where there is room, or too few without.
export function logTicks(low, high, count) {
  if (!(low > 0) || !(high > low)) return [];
  const decades = Math.log10(high / low);
  const factors = decades * 3 <= count || decades < 2 ? [1, 2, 5] : [1];
  const every = Math.max(1, Math.ceil(decades / count));
  const ticks = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); ++power) {
    if (factors.length === 1 && power % every !== 0) continue;
    for (const factor of factors) {
      const value = Number(`${factor}e${power}`);
      if (value >= low * 0.999 && value <= high * 1.001) ticks.push(value);
    }
  }
  return ticks;
}

// Full seconds, minutes or hours of the clock on the wall, at most `count` of them.
export function timeTicks(fromMs, toMs, count) {
  const steps =
      [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600].map((size) => size * 1000);
  const step = steps.find((size) => (toMs - fromMs) / size <= count) ?? steps.at(-1);
  const zoneMs = -new Date(toMs).getTimezoneOffset() * 60000;
  const ticks = [];
  for (let at = Math.ceil((fromMs + zoneMs) / step) * step - zoneMs; at <= toMs; at += step) {
    ticks.push({v: at, label: step < 60000 ? clock(at) : clock(at).slice(0, 5)});
  }
  return ticks;
}
