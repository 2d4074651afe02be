// Elements. Texts of jobs and peers come in as text nodes only, never as HTML.

export const byID = (id) => document.getElementById(id);

/** el makes an element with attributes and children; a string is a text. */
export function el(name, attributes = {}, ...children) {
  const e = document.createElement(name);
  for (const [k, v] of Object.entries(attributes)) if (v !== undefined && v !== false) e.setAttribute(k, v);
  e.append(...children.filter((c) => c !== undefined && c !== null));
  return e;
}

/** put sets the text of an element, and the number that it stands for. */
export function put(id, text, value) {
  const e = byID(id);
  if (e.textContent !== text) e.textContent = text;
  if (value !== undefined) e.dataset.value = value;
}

/** table makes a table; a head that begins with "#" is one of numbers. */
export function table(caption, heads, rows) {
  const number = heads.map((h) => h.startsWith("#"));
  const t = el("table", {}, el("caption", {}, caption),
    el("thead", {}, el("tr", {}, ...heads.map((h, i) => el("th", { scope: "col", class: number[i] && "n" }, h.replace(/^#/, ""))))));
  const body = el("tbody");
  for (const row of rows) body.append(el("tr", {}, ...row.map((c, i) => el("td", { class: number[i] && "n" }, c))));
  t.append(body);
  return t;
}

/** options sets the choices of a select, and keeps the chosen one. */
export function options(select, list) {
  const now = [...select.options].map((o) => o.value + "\n" + o.text).join("\n");
  if (now === list.map(([v, t]) => v + "\n" + t).join("\n")) return;
  const chosen = select.value;
  select.replaceChildren(...list.map(([v, t]) => el("option", { value: v }, t)));
  if (list.some(([v]) => v === chosen)) select.value = chosen;
}
