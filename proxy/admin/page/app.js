// The page: it takes the events of this proxy and shows them.

import * as budget from "./budget.js";
import { Rates } from "./charts.js";
import * as detail from "./detail.js";
import { byID, el, options, put, table } from "./dom.js";
import * as format from "./format.js";
import { History } from "./history.js";
import { TensorMap } from "./map.js";
import * as shadow from "./shadow.js";

let live = null; // the newest of each event
let tensors = null;
let halves = [];
let report = null; // of shadow mode
let past = null; // History of the chosen range
let asked = 0; // number of the newest request for a history

const noJob = "(none)"; // value of the choice of connections of no job, whose name is empty: no job can be called so
const chosen = () => {
  const job = byID("job").value;
  return { peer: byID("peer").value, job: job === "" ? null : job === noJob ? "" : job, step: Number(new FormData(byID("controls")).get("range")) };
};

const sent = new Rates(byID("chart-sent"));
const received = new Rates(byID("chart-received"));
const map = new TensorMap((t) => detail.show(t, byID("half").value));

// ---- history

async function load() {
  const number = ++asked;
  const answer = await fetch("history?step=" + chosen().step);
  if (!answer.ok || number !== asked) return;
  past = new History(await answer.json());
  draw();
}

/** gaps puts a null wherever the process did not run, so that no line is drawn there. */
function gaps(times, step, columns) {
  const t = [], all = columns.map(() => []);
  times.forEach((time, i) => {
    if (i && time - times[i - 1] > 2.5 * step) { t.push(times[i - 1] + step); all.forEach((c) => c.push(null)); }
    t.push(time);
    columns.forEach((c, k) => all[k].push(c[i]));
  });
  return [t, ...all];
}

/** outages lists the times of outages, [from, to], that touch one another as one. One that goes on in the next slot begins within its first, and ends within its last. */
function outages(h, links) {
  const all = [], downs = h.sum(links, "down_seconds");
  downs.forEach((down, i) => {
    if (!(down > 0)) return;
    const follows = h.times[i + 1] - h.times[i] === h.step && downs[i + 1] > 0, had = h.times[i] - h.times[i - 1] === h.step && downs[i - 1] > 0, part = Math.min(down, h.step);
    const from = follows && !had ? h.times[i] + h.step - part : h.times[i], to = had && !follows ? h.times[i] + part : h.times[i] + h.step;
    if (all.length && from - all[all.length - 1][1] < 1) all[all.length - 1][1] = to;
    else all.push([from, to]);
  });
  return all;
}

function draw() {
  if (!past || past.step !== chosen().step) return;
  const { peer, job } = chosen();
  const series = past.select(peer, job), links = past.select(peer, null);
  const perSecond = (column) => past.sum(series, column).map((b) => b / past.step);
  const goodput = past.sum(links, "goodput_bytes_per_second").map((b) => b || null);
  const end = live ? live.time_ms / 1000 : Date.now() / 1000, first = past.times[0] ?? end;
  const range = [Math.max(end - past.span, Math.min(first, end - past.span / 12)), end]; // of a young history only the time that there is
  const whole = past.times.length - 1; // the newest slot is still growing
  const upto = (c) => c.slice(0, Math.max(whole, 0));
  const times = upto(past.times), bands = outages(past, links);
  sent.set(gaps(times, past.step, [perSecond("raw_bytes"), perSecond("sent_bytes"), goodput].map(upto)), bands, range);
  received.set(gaps(times, past.step, [perSecond("delivered_bytes"), perSecond("received_bytes"), past.times.map(() => null)].map(upto)), bands, range);
  totals(series, links);
  if (byID("history-table").closest("details").open) historyTable(series, links);
}

const add = (list) => list.reduce((a, b) => a + b, 0);

/** totals fills the tiles: of the time shown, and since the start. */
function totals(series, links) {
  const total = (column) => add(past.sum(series, column));
  const raw = total("raw_bytes"), got = total("delivered_bytes"), out = total("sent_bytes"), back = total("received_bytes");
  put("ratio", format.ratio((raw + got) / (out + back)), out + back > 0 ? (raw + got) / (out + back) : 0);
  put("app", format.bytes(raw + got), raw + got);
  put("app-sub", `${format.bytes(raw)} sent, ${format.bytes(got)} received`);
  put("wan", format.bytes(out + back), out + back);
  put("wan-sub", `${format.bytes(out)} sent, ${format.bytes(back)} received`);
  if (chosen().job !== null) put("wan-sub", byID("wan-sub").textContent + ": the job's part, by its part of the coded bytes");
  if (!live) return;
  const { peer } = chosen();
  const peers = live.peers.filter((p) => !peer || p.name === peer);
  const whole = (f) => add(peers.map(f));
  const app = whole((p) => p.raw_bytes + p.delivered_bytes), wan = whole((p) => p.sent_bytes + p.received_bytes);
  put("ratio-sub", `${wan > 0 ? format.ratio(app / wan) : "–"} since the start, ${format.span(live.uptime_seconds)} ago`);
  for (const [id, f] of [["raw", (p) => p.raw_bytes], ["delivered", (p) => p.delivered_bytes], ["sent", (p) => p.sent_bytes], ["received", (p) => p.received_bytes]]) byID("main").dataset[id] = whole(f);
  const last = past.times.length - 2; // a slot that is whole
  const goodput = whole((p) => p.goodput_bytes_per_second);
  if (last >= 0) {
    const now = past.sum(links, "sent_bytes")[last] / past.step, here = past.sum(links, "received_bytes")[last] / past.step;
    put("now", format.rate(now + here));
    put("now-sub", `${format.rate(now)} sent` + (goodput > 0 ? `, ${format.percent(Math.min(now / goodput, 1))} of ${format.rate(goodput)} that it delivers` : `, ${format.rate(here)} received`));
  }
  moneyTile(peers, raw, out);
}

function moneyTile(peers, raw, out) {
  const priced = peers.filter((p) => p.money);
  const currencies = new Set(priced.map((p) => p.money.currency));
  if (!priced.length) {
    put("money", "–");
    put("money-sub", "set price of a peer to count it");
    return;
  }
  const saved = [...currencies].map((c) => format.money(add(priced.filter((p) => p.money.currency === c).map((p) => p.money.saved)), c));
  put("money", saved.join(", "), add(priced.map((p) => p.money.saved)));
  put("money-sub", currencies.size > 1 ? "since the start" : `of ${format.money(add(priced.map((p) => p.money.saved + p.money.spent)), [...currencies][0])} since the start; egress at ${[...new Set(priced.map((p) => p.money.per_gb))].join(", ")} a GB`);
}

function historyTable(series, links) {
  const column = (c) => past.sum(series, c), down = past.sum(links, "down_seconds");
  const all = ["raw_bytes", "sent_bytes", "delivered_bytes", "received_bytes"].map(column);
  const rows = past.times.map((t, i) => [format.time(t), ...all.map((c) => format.bytes(c[i])), down[i] > 0 ? down[i].toFixed(0) + " s" : ""]).reverse();
  byID("history-table").replaceChildren(table(`Bytes in each ${past.step} s, the newest first`, ["time", "#job sent", "#WAN sent", "#job received", "#WAN received", "#outage"], rows.slice(0, 400)));
}

// ---- state

function state() {
  put("site", "site " + live.site);
  put("program", "gradproxy " + live.version + ", " + live.connections + (live.connections === 1 ? " connection" : " connections"));
  document.title = live.site + " – gradproxy";
  const bad = live.checks.filter((c) => !c.ok);
  const pill = byID("state");
  const text = bad.length ? "not ready" : "ready";
  if (pill.textContent !== text) pill.textContent = text;
  pill.className = "pill " + (bad.length ? "bad" : "good");
  const alerts = bad.map((c) => c.name + ": " + c.error).join(" · ");
  if (byID("alerts").textContent !== alerts) byID("alerts").textContent = alerts;
  options(byID("peer"), [["", "all"], ...live.peers.map((p) => [p.name, p.name])]);
  const jobs = [...new Set(live.jobs.map((j) => j.job))];
  options(byID("job"), [["", "all"], ...jobs.map((j) => [j || noJob, j || "(no job)"])]);
  options(byID("half"), [["", "here"], ...live.peers.map((p) => [p.name, p.name])]);
  budget.show(live.budgets, live.peers);
  peersTable();
}

/** drawShadow shows the candidates of shadow mode, of the chosen peer and job. */
function drawShadow() {
  const { peer, job } = chosen();
  shadow.show(report, tensors ? tensors.largest : [], (x) => (!peer || x.peer === peer) && (job === null || x.job === job));
}

function peersTable() {
  const heads = ["peer, carrier", "state", "#RTT", "#loss", "congestion control", "#backlog", "#job sent", "#WAN sent", "#job received", "#WAN received", "#ratio", "#delivers", "#outages"];
  const rows = [], classes = [];
  for (const p of live.peers) {
    const fine = p.up;
    const stateText = fine ? "up" : p.outage_seconds > 0 ? "outage for " + format.span(p.outage_seconds) : "down";
    rows.push([el("span", {}, el("i", { class: "dot" + (fine ? "" : " bad"), "aria-hidden": "true" }), p.name), stateText + (p.choice ? " (" + p.choice + ")" : ""), format.span(p.rtt_seconds), "", "", format.bytes(p.unconfirmed_bytes),
      format.bytes(p.raw_bytes), format.bytes(p.sent_bytes), format.bytes(p.delivered_bytes), format.bytes(p.received_bytes), format.ratio((p.raw_bytes + p.delivered_bytes) / (p.sent_bytes + p.received_bytes)), p.goodput_bytes_per_second ? format.rate(p.goodput_bytes_per_second) : "–", format.count(p.outages)]);
    classes.push("peer");
    for (const c of p.carriers) {
      rows.push([`${c.carrier} to ${c.remote}`, c.leaving ? "leaving" : "for " + format.span(c.age_seconds), format.span(c.rtt_seconds), format.percent(c.loss), c.congestion || "?", format.bytes(c.backlog_bytes), "", format.bytes(c.sent_bytes), "", format.bytes(c.received_bytes), "", "", ""]);
      classes.push("carrier");
    }
    const half = halves.find((h) => h.peer === p.name);
    if (half) {
      const v = half.view;
      rows.push([`${p.name}, by its own count`, v ? "runs " + v.program : half.error, v ? format.span(v.rtt_seconds) : "", "", "", "", v ? format.bytes(v.delivered_bytes) : "", v ? format.bytes(v.received_bytes) : "", v ? format.bytes(v.raw_bytes) : "", v ? format.bytes(v.sent_bytes) : "", v ? format.ratio((v.raw_bytes + v.delivered_bytes) / (v.sent_bytes + v.received_bytes)) : "", v && v.goodput_bytes_per_second ? format.rate(v.goodput_bytes_per_second) : "", ""]);
      classes.push("carrier half");
    }
  }
  const t = table("Bytes since the start", heads, rows);
  [...t.tBodies[0].rows].forEach((r, i) => {
    r.className = classes[i];
    const first = r.cells[0];
    const th = el("th", { scope: "row" }, ...first.childNodes);
    first.replaceWith(th);
    if (classes[i] === "peer" && !live.peers.find((p) => p.name === th.textContent)?.up) r.cells[1].className = "bad";
  });
  byID("peers").replaceChildren(t);
}

// ---- tensors

function drawTensors() {
  const half = byID("half").value, { peer, job } = chosen();
  const view = half ? halves.find((h) => h.peer === half)?.view : null;
  const list = half ? view?.tensors ?? { count: 0, largest: [], groups: [] } : tensors;
  if (!list) return;
  map.area = document.querySelector("input[name=area]:checked").value;
  map.set(list, (t) => (half || !peer || t.peer === peer) && (job === null || t.job === job) && t.raw_bytes > 0);
}

// ---- events

const source = new EventSource("events");
source.addEventListener("live", (e) => {
  live = JSON.parse(e.data);
  state();
  if (past) for (const points of live.points) if (points.step === past.step) past.take(points);
  draw();
});
source.addEventListener("tensors", (e) => { tensors = JSON.parse(e.data); drawTensors(); drawShadow(); });
source.addEventListener("shadow", (e) => { report = JSON.parse(e.data); drawShadow(); });
source.addEventListener("halves", (e) => { halves = JSON.parse(e.data); if (byID("half").value) drawTensors(); });
source.onerror = () => {
  byID("state").className = "pill bad";
  byID("state").textContent = "no answer, trying again";
};
source.onopen = load; // after a gap too

byID("controls").addEventListener("change", (e) => {
  if (e.target.name === "range") load();
  else { draw(); drawTensors(); drawShadow(); }
});
byID("controls").addEventListener("submit", (e) => e.preventDefault());
byID("half").addEventListener("change", () => { detail.clear(); byID("detail").replaceChildren(el("p", { class: "hint" }, "Choose a tensor.")); map.chosen = null; drawTensors(); });
byID("areas").addEventListener("change", drawTensors);
for (const d of document.querySelectorAll("details")) d.addEventListener("toggle", () => { draw(); drawTensors(); drawShadow(); if (d.open && map.items) map.table(); });
document.addEventListener("keydown", (e) => {
  if (e.key === "Escape" && map.chosen) {
    map.tiles.get(map.chosen)?.focus(); // the focus may be in the part that is closed
    map.chosen = null;
    detail.clear();
    byID("detail").replaceChildren(el("p", { class: "hint" }, "Choose a tensor."));
    drawTensors();
  }
});

const dark = matchMedia("(prefers-color-scheme: dark)");
const redraw = () => { sent.draw(); received.draw(); draw(); };
dark.addEventListener("change", redraw);
byID("theme").addEventListener("click", () => {
  const root = document.documentElement.dataset;
  root.theme = (root.theme ?? (dark.matches ? "dark" : "light")) === "dark" ? "light" : "dark";
  try { localStorage.setItem("gradproxy-theme", root.theme); } catch { /* it holds until the page is left */ }
  redraw();
});
