// One tensor: how it travels, why, how that went, and how the configuration could change it.

import { lines } from "./charts.js";
import { byID, el } from "./dom.js";
import * as format from "./format.js";
import { title } from "./map.js";

let charts = [];

export function clear() {
  for (const c of charts) c.end();
  charts = [];
}

const facts = (pairs) => el("dl", {}, ...pairs.filter(([, v]) => v).flatMap(([k, v]) => [el("dt", {}, k), el("dd", {}, v)]));

/** copy puts a text on the clipboard; where a browser does not let it, the text is selected. */
async function copy(button, pre) {
  try {
    await navigator.clipboard.writeText(pre.textContent);
    button.textContent = "copied";
  } catch {
    getSelection().selectAllChildren(pre);
    button.textContent = "press Ctrl-C";
  }
  setTimeout(() => { button.textContent = "copy"; }, 2000);
}

/** show asks for a tensor of this site, or of a peer's half, and shows it. */
export async function show(t, peer) {
  const box = byID("detail");
  if (t.group) {
    clear();
    box.replaceChildren(el("h3", {}, title(t)), el("p", { class: "sub" }, "They are too small to stand one by one; /tensors lists all."),
      facts([["job", t.job], ["to", t.peer], ["role", t.role], ["codec", t.codec], ["bytes of the job", format.bytes(t.raw_bytes)], ["bytes sent", format.bytes(t.wire_bytes)], ["ratio", format.ratio(t.raw_bytes / t.wire_bytes)]]));
    return;
  }
  const answer = await fetch("tensor?" + new URLSearchParams(peer ? { id: t.id, peer } : { id: t.id }));
  if (!answer.ok) {
    clear();
    box.replaceChildren(el("p", { class: "hint" }, await answer.text()));
    return;
  }
  const { tensor, explanation, history } = await answer.json();
  clear();
  const parts = [el("h3", {}, title(tensor)), el("p", { class: "sub" }, `${tensor.from || "?"} → ${tensor.to || "?"}, by ${tensor.protocol}`), el("p", { class: "why" }, explanation.why)];
  parts.push(facts([["role", tensor.role], ["evidence", tensor.evidence === "ok" ? tensor.proof : tensor.evidence], ["codec", tensor.codec], ["type", tensor.dtype], ["shape", tensor.shape], ["size", format.bytes(tensor.bytes)],
    ["number", tensor.number ? `${tensor.number}${nth(tensor.number)} of its connection` : ""], ["values", format.count(tensor.values)],
    ["bytes", `${format.bytes(tensor.raw_bytes)} → ${format.bytes(tensor.wire_bytes)}, ${format.ratio(tensor.raw_bytes / tensor.wire_bytes)}`],
    ["relative error", tensor.relative_error ? format.percent(tensor.relative_error) : ""], ["residual", tensor.residual_ratio ? format.percent(tensor.residual_ratio) + " of the value" : ""],
    ["guarded", tensor.guarded ? format.count(tensor.guarded) + " blocks" : ""], ["key", BigInt(tensor.key).toString(16)]]));
  if (explanation.change) parts.push(el("h4", {}, "To change that"), el("p", { class: "why" }, explanation.change));
  if (explanation.yaml) {
    const pre = el("pre", { tabindex: "0", "aria-label": "Configuration" }, explanation.yaml), button = el("button", { type: "button" }, "copy");
    button.addEventListener("click", () => copy(button, pre));
    parts.push(el("div", { class: "yaml" }, pre, button));
  }
  if (tensor.shadow?.length) {
    parts.push(el("h4", {}, "In shadow mode"), facts(tensor.shadow.filter((c) => c.raw_bytes > 0).map((c) => [c.codec,
      `${format.ratio(c.raw_bytes / c.wire_bytes)}, ${format.bytes((tensor.raw_bytes * c.wire_bytes) / c.raw_bytes)}, error ${c.relative_error ? format.percent(c.relative_error) : "0"}`])));
  }
  const ratio = el("div", { class: "spark" }), error = el("div", { class: "spark" });
  const traced = history && history.times.length > 1, lost = traced && history.relative_error.some((x) => x > 0);
  if (traced) parts.push(el("h4", {}, "Ratio over time"), ratio);
  if (lost) parts.push(el("h4", {}, "Relative error, residual"), error);
  box.replaceChildren(...parts);
  if (traced) charts.push(lines(ratio, history.times, [history.raw_bytes.map((r, i) => (history.wire_bytes[i] > 0 ? r / history.wire_bytes[i] : null))], (v) => format.ratio(v), ["ratio"]));
  if (lost) charts.push(lines(error, history.times, [history.relative_error, history.residual_ratio], format.percent, ["relative error", "residual"]));
}

const nth = (n) => (n % 100 > 10 && n % 100 < 14 ? "th" : ["th", "st", "nd", "rd"][n % 10] ?? "th");
