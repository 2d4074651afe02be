// Charts over time, by uPlot. Their colours are the page's, so they are made anew when the theme changes.

import { el } from "./dom.js";
import * as format from "./format.js";

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** tip shows the values under the pointer. */
function tip(lines) {
  const box = el("div", { class: "tip", hidden: "" });
  return {
    hooks: {
      init: (u) => u.over.append(box),
      setCursor: (u) => {
        const { idx, left, top } = u.cursor;
        const shown = idx !== null && idx !== undefined && left >= 0 && u.data[0][idx] !== undefined;
        box.hidden = !shown;
        if (!shown) return;
        box.replaceChildren(el("b", {}, format.time(u.data[0][idx])), ...lines(u, idx).map((l) => el("div", {}, l)));
        const right = left > u.over.clientWidth / 2;
        box.style.left = right ? "" : left + 14 + "px";
        box.style.right = right ? u.over.clientWidth - left + 14 + "px" : "";
        box.style.top = Math.min(top, u.over.clientHeight - 60) + "px";
      },
    },
  };
}

/** bands draws the times of outages behind the lines. */
function bands(outages) {
  return {
    hooks: {
      drawClear: (u) => {
        u.ctx.save();
        u.ctx.fillStyle = css("--down");
        for (const [from, to] of outages()) {
          const a = Math.max(u.valToPos(from, "x", true), u.bbox.left), b = Math.min(u.valToPos(to, "x", true), u.bbox.left + u.bbox.width);
          if (b > u.bbox.left && a < u.bbox.left + u.bbox.width) u.ctx.fillRect(a, u.bbox.top, Math.max(b - a, 2), u.bbox.height);
        }
        u.ctx.restore();
      },
    },
  };
}

const font = "11.5px system-ui, sans-serif";

const axes = (value) => [
  { stroke: css("--soft"), grid: { stroke: css("--grid"), width: 1 }, ticks: { show: false }, font, space: 70, size: 26,
    values: [[86400, "{YYYY}-{MM}-{DD}", null, null, null, null, null, null, 1], [3600, "{HH}:{mm}", null, null, null, null, null, null, 1], [60, "{HH}:{mm}", null, null, null, null, null, null, 1], [1, "{HH}:{mm}:{ss}", null, null, null, null, null, null, 1]] },
  { stroke: css("--soft"), grid: { stroke: css("--grid"), width: 1 }, ticks: { show: false }, font, size: 72, space: 38, values: (u, all) => all.map((v) => (v === null ? "" : value(v))) },
];

/** sized makes a chart that follows the size of its box. */
function sized(box, options, data) {
  const u = new uPlot({ width: box.clientWidth || 300, height: box.clientHeight || 160, legend: { show: false }, cursor: { drag: { x: false, y: false }, points: { size: 6 } }, ...options }, data, box);
  const watch = new ResizeObserver(() => { if (box.clientWidth) u.setSize({ width: box.clientWidth, height: box.clientHeight }); });
  watch.observe(box);
  return { u, end: () => { watch.disconnect(); u.destroy(); } };
}

/** Rates is the chart of a direction: bytes of the job against bytes on the WAN. */
export class Rates {
  constructor(box) {
    this.box = box;
    this.data = [[], [], [], []];
    this.outages = [];
    this.draw();
  }

  draw() {
    this.chart?.end();
    this.chart = sized(this.box, {
      scales: { x: { time: true, range: () => this.range ?? [0, 1] }, y: { range: (u, min, max) => [0, (max || 1) * 1.08] } },
      axes: axes(format.short),
      series: [{}, { stroke: css("--app"), fill: css("--app-fill"), width: 1.2, points: { show: false } },
        { stroke: css("--wan"), fill: css("--wan-fill"), width: 1.2, points: { show: false } },
        { stroke: css("--link"), width: 1.3, dash: [5, 4], points: { show: false } }],
      plugins: [bands(() => this.outages), tip((u, i) => {
        const [, app, wan, link] = u.data;
        if (app[i] === null) return ["the proxy did not run"];
        return ["job " + format.rate(app[i]), "WAN " + format.rate(wan[i]), wan[i] > 0 ? format.ratio(app[i] / wan[i]) + " fewer" : "", link[i] ? "link " + format.rate(link[i]) : ""].filter(Boolean);
      })],
    }, this.data);
  }

  set(data, outages, range) {
    this.data = data;
    this.outages = outages;
    this.range = range;
    this.chart.u.setData(data);
  }
}

/** lines is a small chart of one or two lines. */
export function lines(box, times, all, value, names) {
  const colours = ["--wan", "--link"];
  return sized(box, {
    scales: { x: { time: true }, y: { range: (u, min, max) => [0, (max || 1) * 1.1] } },
    axes: axes(value),
    series: [{}, ...all.map((_, i) => ({ stroke: css(colours[i]), width: 1.5, points: { show: all[0].length < 3 } }))],
    plugins: [tip((u, i) => names.map((n, k) => n + " " + (u.data[k + 1][i] === null ? "–" : value(u.data[k + 1][i]))))],
  }, [times, ...all]);
}
