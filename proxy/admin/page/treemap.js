// A squarified treemap: Bruls, Huizing, van Wijk: Squarified Treemaps, 2000.

/** squarify gives each item, of a weight above 0, a rectangle {x, y, w, h}; together they fill the one of w by h. */
export function squarify(items, w, h) {
  const total = items.reduce((sum, i) => sum + i.weight, 0);
  const out = new Map();
  if (!(total > 0) || w <= 0 || h <= 0) return out;
  const rest = items.filter((i) => i.weight > 0).sort((a, b) => b.weight - a.weight);
  const scale = (w * h) / total;
  let x = 0, y = 0;
  for (let at = 0; at < rest.length;) {
    const side = Math.min(w, h);
    let sum = 0, end = at, best = Infinity;
    for (; end < rest.length; end++) {
      const grown = sum + rest[end].weight * scale;
      const most = rest[at].weight * scale, least = rest[end].weight * scale;
      const worst = Math.max((side * side * most) / (grown * grown), (grown * grown) / (side * side * least));
      if (worst > best) break;
      best = worst;
      sum = grown;
    }
    const thick = sum / side;
    let along = 0;
    for (; at < end; at++) {
      const long = (rest[at].weight * scale) / thick;
      out.set(rest[at], w >= h ? { x, y: y + along, w: thick, h: long } : { x: x + along, y, w: long, h: thick });
      along += long;
    }
    if (w >= h) { x += thick; w -= thick; } else { y += thick; h -= thick; }
  }
  return out;
}
