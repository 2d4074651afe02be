// The map of tensors: a tile for each, its area the bytes, its colour the codec; the others stand in groups.

import { byID, el, table } from "./dom.js";
import * as format from "./format.js";
import { squarify } from "./treemap.js";

/** title names a tensor as a person knows it. */
export function title(t) {
  if (t.group) return format.count(t.count) + " others";
  const what = t.name || (t.number ? "#" + t.number : "");
  return [t.job, t.from || "", what].filter(Boolean).join(" · ") || t.protocol;
}

const kind = (t) => [t.role, t.shape || "", t.dtype && t.dtype !== "unknown" ? t.dtype : ""].filter(Boolean).join(" ");
const ratioOf = (t) => (t.wire_bytes > 0 ? t.raw_bytes / t.wire_bytes : 0);

export class TensorMap {
  constructor(choose) {
    this.box = byID("map");
    this.choose = choose;
    this.tiles = new Map();
    this.colours = new Map([["verbatim", 0], ["", 0], ["lossless", 1]]);
    this.chosen = null;
    this.area = "raw_bytes";
    this.box.addEventListener("keydown", (e) => this.key(e));
    new ResizeObserver(() => this.draw()).observe(this.box);
  }

  /** colour gives each codec a colour of its own, in the order in which codecs first came. */
  colour(codec) {
    if (!this.colours.has(codec)) this.colours.set(codec, 2 + ((this.colours.size - 3) % 6));
    return "var(--c" + this.colours.get(codec) + ")";
  }

  /** set shows tensors, {count, largest, groups}, that pass a filter. */
  set(tensors, keep) {
    const groups = tensors.groups.map((g) => ({ ...g, group: true, id: "g" + JSON.stringify([g.peer, g.job, g.role, g.codec]) }));
    this.items = [...tensors.largest, ...groups].filter(keep);
    this.draw();
    const shown = this.items.reduce((n, t) => n + (t.group ? t.count : 1), 0);
    byID("map-count").textContent = shown ? format.count(shown) + (shown === 1 ? " tensor" : " tensors") : "";
    this.legend();
    if (byID("tensor-table").closest("details").open) this.table();
  }

  draw() {
    if (!this.items) return;
    const { clientWidth: w, clientHeight: h } = this.box;
    const places = squarify(this.items.map((t) => ({ t, weight: t[this.area] })), w, h);
    const seen = new Set();
    for (const [item, r] of places) {
      if (r.w < 3 || r.h < 3) continue;
      seen.add(item.t.id);
      this.tile(item.t, r);
    }
    for (const [id, tile] of this.tiles) if (!seen.has(id)) { tile.remove(); this.tiles.delete(id); }
    this.box.querySelector(".empty")?.remove();
    if (!seen.size) this.box.append(el("p", { class: "empty" }, "No tensor has been seen yet: either no job has connected, or what connected is of no protocol that gradproxy understands."));
    const tiles = [...this.tiles.values()];
    if (tiles.length && !tiles.some((t) => t.tabIndex === 0)) tiles[0].tabIndex = 0;
  }

  tile(t, r) {
    let tile = this.tiles.get(t.id);
    if (!tile) {
      tile = el("button", { type: "button", class: "tilet" + (t.group ? " group" : ""), tabindex: "-1" }, el("b"), el("small"), el("small"), el("small"));
      tile.addEventListener("click", () => this.pick(tile.tensor));
      this.tiles.set(t.id, tile);
      this.box.append(tile);
    }
    tile.tensor = t;
    Object.assign(tile.style, { left: r.x + "px", top: r.y + "px", width: r.w + "px", height: r.h + "px", backgroundColor: this.colour(t.codec) });
    const ratio = ratioOf(t);
    const [a, b, c, d] = tile.children;
    const roomy = r.w > 46 && r.h > 22;
    tile.style.padding = roomy ? "" : "0";
    const lines = [[t.codec || "mixed", ratio ? format.ratio(ratio) : ""].filter(Boolean).join("  "), [t.from, kind(t)].filter(Boolean).join(", "), [t.job, t.group ? "" : format.bytes(t.bytes)].filter(Boolean).join(", ")];
    a.textContent = roomy ? t.group ? title(t) : t.name || (t.number ? "#" + t.number : t.role) : "";
    b.textContent = roomy && r.h > 40 ? lines[0] : "";
    c.textContent = roomy && r.h > 58 ? lines[1] : "";
    d.textContent = roomy && r.h > 76 ? lines[2] : "";
    tile.setAttribute("aria-label", `${title(t)}, ${kind(t)}, ${format.bytes(t.raw_bytes)} of the job, ${format.bytes(t.wire_bytes)} sent by ${t.codec}`);
    tile.setAttribute("aria-pressed", String(this.chosen === t.id));
    tile.title = tile.getAttribute("aria-label");
  }

  pick(t) {
    this.chosen = t.id;
    for (const tile of this.tiles.values()) {
      tile.setAttribute("aria-pressed", String(tile.tensor.id === t.id));
      tile.tabIndex = tile.tensor.id === t.id ? 0 : -1;
    }
    this.choose(t);
  }

  /** key moves to the nearest tile in the direction of an arrow. */
  key(e) {
    const way = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[e.key];
    if (!way || !e.target.classList.contains("tilet")) return;
    e.preventDefault();
    const middle = (t) => [t.offsetLeft + t.offsetWidth / 2, t.offsetTop + t.offsetHeight / 2];
    const [x, y] = middle(e.target);
    let best = null, least = Infinity;
    for (const tile of this.tiles.values()) {
      const [a, b] = middle(tile);
      const ahead = (a - x) * way[0] + (b - y) * way[1], aside = Math.abs((a - x) * way[1]) + Math.abs((b - y) * way[0]);
      if (ahead > 1 && ahead + 2 * aside < least) { least = ahead + 2 * aside; best = tile; }
    }
    if (best) { e.target.tabIndex = -1; best.tabIndex = 0; best.focus(); }
  }

  legend() {
    const sums = new Map();
    for (const t of this.items) {
      const s = sums.get(t.codec) ?? { raw: 0, wire: 0 };
      s.raw += t.raw_bytes;
      s.wire += t.wire_bytes;
      sums.set(t.codec, s);
    }
    byID("legend").replaceChildren(...[...sums].sort((a, b) => b[1].raw - a[1].raw).slice(0, 10).map(([codec, s]) => {
      const i = el("i");
      i.style.backgroundColor = this.colour(codec);
      return el("span", {}, i, `${codec || "mixed"}  ${format.bytes(s.raw)} → ${format.bytes(s.wire)}`);
    }));
  }

  table() {
    byID("tensor-table").replaceChildren(table("Tensors, the largest first", ["tensor", "to", "role", "type", "shape", "#bytes", "codec", "#values", "#of the job", "#sent", "#ratio", "#rel. error", "reason"],
      this.items.map((t) => [title(t), t.to || t.peer, t.role, t.dtype ?? "", t.shape ?? "", t.group ? "" : format.bytes(t.bytes), t.codec || "mixed", t.group ? "" : format.count(t.values), format.bytes(t.raw_bytes), format.bytes(t.wire_bytes),
        format.ratio(ratioOf(t)), t.relative_error ? format.percent(t.relative_error) : "", t.reason && t.reason !== "ok" ? t.reason : ""])));
  }
}
