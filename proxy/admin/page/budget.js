// The budgets of the day: the bytes that links may carry, the bytes that they have carried, and the consequence.

import { byID, el } from "./dom.js";
import * as format from "./format.js";

const words = { within: "will last", "will not last": "will not last", spent: "spent" };

/** gauge is a bar of a share, with the share projected for the whole day behind it. */
function gauge(b, name) {
  const part = (v) => Math.min(100, (100 * v) / b.limit).toFixed(1);
  const box = el("div", { class: "gauge " + (b.state === "within" ? "" : "bad"), role: "meter", "aria-label": name, "aria-valuemin": "0", "aria-valuemax": "100", "aria-valuenow": part(b.used),
    "aria-valuetext": `${format.bytes(b.used_bytes)} of ${format.bytes(b.limit_bytes)} used` }, el("i", { class: "projected" }), el("i", { class: "used" }));
  box.children[0].style.width = part(b.projected) + "%";
  box.children[1].style.width = part(b.used) + "%";
  return box;
}

/** show shows all budgets; the section is hidden where there are none. Prices are of peers. */
export function show(budgets, peers) {
  byID("budgets").hidden = !budgets?.length;
  if (!budgets?.length) return;
  byID("budgets-left").textContent = `${format.span(budgets[0].left_seconds)} left until midnight (UTC)`;
  byID("budget-list").replaceChildren(...budgets.map((b) => {
    const name = b.peer ? "to " + b.peer : "job " + b.job;
    const money = peers.find((p) => p.name === b.peer)?.money;
    const spent = money ? `, ${format.money((b.used_bytes / 1e9) * money.per_gb, money.currency)}` : "";
    return el("div", { class: "budget" },
      el("h3", {}, name, " ", el("span", { class: "pill " + (b.state === "within" ? "good" : "bad") }, words[b.state] ?? b.state)),
      gauge({ ...b, used: b.used_bytes, limit: b.limit_bytes, projected: b.projected_bytes }, "Budget " + name),
      el("p", { class: "sub" }, `${format.bytes(b.used_bytes)} of ${format.bytes(b.limit_bytes)} used${spent}` + (b.projected_bytes > b.used_bytes ? `; ${format.bytes(b.projected_bytes)} by the end of the day at the rate of the last hour` : "")),
      el("p", { class: "plan" }, b.plan));
  }));
}
