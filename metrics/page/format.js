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
    case 'B': return scaled(value, 1024, kBinary);
    case 'B/s': return `${scaled(value, 1024, kBinary)}/s`;
    case 's': return seconds(value);
    case '%': return `${digits(value * 100)} %`;
    case '/s': return `${scaled(value, 1000, kSi)}/s`;
    case '': return scaled(value, 1000, kSi);
    default: return `${scaled(value, 1000, kSi)} ${unit}`;
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

// Values of about `count` ticks from `low` to `high`: 1, 2, 5 times a power of ten, or of 1024.
export function linearTicks(low, high, count, unit) {
  const span = high - low;
  if (!(span > 0) || !Number.isFinite(span)) return [low];
  const rough = span / Math.max(1, count);
  let unitSize = 1;
  if (unit.startsWith('B')) while (rough >= unitSize * 1000) unitSize *= 1024;
  const magnitude = unitSize * 10 ** Math.floor(Math.log10(rough / unitSize));
  const step = [1, 2, 5, 10].map((factor) => factor * magnitude).find((size) => size >= rough);
  const ticks = [];
  for (let at = Math.ceil(low / step - 1e-9); at * step <= high * (1 + 1e-9); ++at) ticks.push(at * step);
  return ticks;
}

// Powers of ten, with 2 and 5 times them where there is room.
export function logTicks(low, high, count) {
  if (!(low > 0) || !(high > low)) return [];
  const decades = Math.log10(high / low);
  const factors = decades * 3 <= count ? [1, 2, 5] : [1];
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
