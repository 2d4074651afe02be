// Shadow mode: the bytes, the error and the money that each candidate would give, in all, by role and by tensor.

import { byID, el, table } from "./dom.js";
import * as format from "./format.js";
import { title } from "./map.js";

const sum = (list, f) => list.reduce((a, x) => a + f(x), 0);

/** moneyOf adds up money of one currency; several currencies have no sum. */
function moneyOf(all, field) {
  const some = all.filter(Boolean), currencies = new Set(some.map((m) => m.currency));
  return currencies.size === 1 ? format.money(sum(some, (m) => m[field]), some[0].currency) : "–";
}

/** guess is one candidate's result on groups that have it: what has none is counted as it travelled. */
function guess(codec, groups) {
  const found = groups.map((g) => ({ g, c: g.candidates.find((c) => c.codec === codec) })), tried = found.filter((x) => x.c);
  const raw = sum(tried, (x) => x.g.raw_bytes);
  const mean = (f) => (raw > 0 ? sum(tried, (x) => f(x.c) * x.g.raw_bytes) / raw : 0);
  return { codec, bytes: sum(found, (x) => (x.c ? x.c.predicted_bytes : x.g.wire_bytes)), error: mean((c) => c.relative_error), residual: mean((c) => c.residual_ratio), coding: mean((c) => c.coding_seconds_per_gb),
    early: sum(tried, (x) => x.c.early_bytes) > 0.1 * sum(tried, (x) => x.c.raw_bytes), near: sum(tried, (x) => x.c.near_guard_bytes) > 0.05 * sum(tried, (x) => x.c.raw_bytes), guarded: sum(tried, (x) => x.c.guarded_blocks), money: tried.map((x) => x.c.money), tried: tried.length };
}

const heads = ["#bytes sent", "#of now", "#ratio", "#relative error", "#residual", "#guarded blocks", "#core s a GB", "#money", "#saved"];

function cells(x, raw, now) {
  return [format.bytes(x.bytes), now > 0 ? format.percent(x.bytes / now) : "–", format.ratio(raw / x.bytes), x.error ? format.percent(x.error) : "0", x.residual ? x.residual.toPrecision(2) + " values" + (x.early ? ", may still grow" : "") + (x.near ? ", near the guard's limit" : "") : "–", format.count(x.guarded), x.coding.toPrecision(2), moneyOf(x.money, "cost"), moneyOf(x.money, "saved")];
}

const present = (raw, now) => [format.bytes(now), format.percent(1), format.ratio(raw / now), "", "", "", "", "", ""];

/** whole shows all groups together. */
function whole(report, groups) {
  const raw = sum(groups, (g) => g.raw_bytes), now = sum(groups, (g) => g.wire_bytes);
  const results = report.codecs.map((c) => guess(c, groups)).filter((x) => x.tried).sort((a, b) => a.bytes - b.bytes);
  const t = table(`Since the start, ${format.bytes(raw)} of the job, if each candidate had been in force wherever it may lose something`, ["codec", ...heads], [["as now", ...present(raw, now)], ...results.map((x) => [x.codec, ...cells(x, raw, now)])]);
  results.forEach((x, i) => { const row = t.tBodies[0].rows[i + 1]; row.dataset.codec = x.codec; row.dataset.bytes = x.bytes; });
  byID("shadow-all").replaceChildren(t, ...(results.length ? [] : [el("p", { class: "sub" }, "Nothing has been sampled yet: a candidate is tried on gradients and weights whose role is proved, from their second value on.")]));
}

function byGroup(report, groups) {
  const rows = groups.filter((g) => g.candidates.length).flatMap((g) => [["as now", ...present(g.raw_bytes, g.wire_bytes)], ...g.candidates.map((c) => [c.codec, ...cells(guess(c.codec, [g]), g.raw_bytes, g.wire_bytes)])]
    .map((r) => [[g.job || "(no job)", g.role, "to " + g.peer].join(", "), ...r]));
  byID("shadow-groups").replaceChildren(table("Candidates by job, role and peer", ["tensors", "codec", ...heads], rows));
}

/** byTensor shows the largest tensors: of each, the bytes that every candidate would have sent in place of its own. */
function byTensor(report, tensors) {
  const rows = tensors.filter((t) => t.shadow?.length).slice(0, 100).map((t) => [title(t), t.role, format.bytes(t.raw_bytes), format.bytes(t.wire_bytes), ...report.codecs.map((codec) => {
    const c = t.shadow.find((x) => x.codec === codec);
    if (!c || !(c.raw_bytes > 0)) return "–";
    return `${format.bytes((t.raw_bytes * c.wire_bytes) / c.raw_bytes)}, error ${c.relative_error ? format.percent(c.relative_error) : "0"}`;
  })]);
  byID("shadow-tensors").replaceChildren(table("The largest sampled tensors, by the ratio of their samples", ["tensor", "role", "#bytes of the job", "#sent now", ...report.codecs.map((c) => "#" + c)], rows));
}

/** show shows a report; without one the section is hidden. */
export function show(report, tensors, keep) {
  byID("shadow").hidden = !report;
  if (!report) return;
  const groups = report.groups.filter(keep);
  byID("shadow-sub").textContent = `${format.bytes(report.sampled_bytes)} sampled in ${format.span(report.spent_core_seconds)} of a core (${format.percent(report.spent_core_seconds / report.seconds)} of one); gradproxy advise chooses among them`;
  whole(report, groups);
  if (byID("shadow-groups").closest("details").open) byGroup(report, groups);
  if (byID("shadow-tensors").closest("details").open) byTensor(report, tensors.filter(keep));
}
