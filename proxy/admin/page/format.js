// Numbers as people read them.

const units = ["B", "kB", "MB", "GB", "TB", "PB"];

/** scaled writes a number of at least three digits with a prefix of 1000. */
function scaled(n, names) {
  let i = 0;
  while (Math.abs(n) >= 999.5 && i < names.length - 1) { n /= 1000; i++; }
  const digits = i === 0 ? 0 : Math.abs(n) >= 99.95 ? 0 : Math.abs(n) >= 9.995 ? 1 : 2;
  return n.toFixed(digits) + "\u00a0" + names[i];
}

/** short is rate for an axis: 40 Mbit/s and not 40.0. */
export const short = (bytesPerSecond) => rate(bytesPerSecond).replace(/(\.\d*?)0+(?=\D)/, "$1").replace(/\.(?=\D)/, "");
export const bytes = (n) => scaled(n, units);
export const rate = (bytesPerSecond) => scaled(8 * bytesPerSecond, ["bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"]);
export const count = (n) => n.toLocaleString("en-US");
export const ratio = (r) => (!isFinite(r) || r <= 0 ? "–" : (r >= 99.5 ? r.toFixed(0) : r >= 9.95 ? r.toFixed(1) : r.toFixed(2)) + "×");
export const percent = (x) => (x === 0 ? "0" : x < 0.0001 ? "< 0.01" : (100 * x).toPrecision(x < 0.1 ? 2 : 3)) + "\u00a0%";

/** span writes a time in seconds. */
export function span(s) {
  if (s <= 0) return "–";
  if (s < 0.0995) return (1000 * s).toPrecision(3) + "\u00a0ms";
  if (s < 1) return (1000 * s).toFixed(0) + "\u00a0ms";
  if (s < 120) return s.toFixed(s < 10 ? 1 : 0) + "\u00a0s";
  if (s < 7200) return (s / 60).toFixed(0) + "\u00a0min";
  return s < 172800 ? (s / 3600).toFixed(1) + "\u00a0h" : (s / 86400).toFixed(1) + "\u00a0days";
}

/** money writes an amount; the currency is of the configuration, which may have one of its own. */
export function money(amount, currency) {
  const digits = Math.abs(amount) >= 100 ? 0 : Math.abs(amount) >= 0.995 || amount === 0 ? 2 : Math.abs(amount) >= 0.01 ? 3 : 5;
  return amount.toFixed(digits).replace(/^-(0\.0+)$/, "$1") + "\u00a0" + currency; // a loss that rounds to nothing has no sign
}

/** time writes a Unix time as the clock of this browser shows it. */
export const time = (unix) => new Date(1000 * unix).toLocaleTimeString([], { hour12: false });
