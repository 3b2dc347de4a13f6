// Elements without markup: whatever a name holds, it is text.
export const find = (id) => document.getElementById(id);

export function el(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "class") made.className = value;
    else if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name in made && typeof value !== "string") made[name] = value;
    else made.setAttribute(name, value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return made;
}

export function svg(tag, properties = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(properties)) made.setAttribute(name, value);
  made.append(...children.flat());
  return made;
}

// Whoever works with keys stays where they are, and what they are writing is kept.
export function fill(target, ...children) {
  const held = document.activeElement !== target && target.contains(document.activeElement) ? document.activeElement : null;
  target.replaceChildren(...children.flat().filter((child) => child !== null && child !== undefined));
  const again = held && [...target.querySelectorAll(held.tagName)].find((one) => same(one, held));
  if (!again) return;
  if (again.type === "text") again.value = held.value;
  again.focus({ preventScroll: true });
}

const same = (one, other) => ["id", "name", "value", "aria-label"].every((name) => name === "value" && one.type === "text" ? true : one.getAttribute(name) === other.getAttribute(name)) && one.textContent === other.textContent;

// What is being done, and a way to stop it.
export const doing = ({ note, label, seconds }) => `${note || label || "working"} …${seconds > 2 ? ` ${Math.round(seconds)} s` : ""}`;
export const working = (progress, stop) =>
  el("div", { class: "work" }, el("progress", { "aria-label": "Progress", value: progress.share }), el("span", {}, doing(progress)), stop ? el("button", { class: "plain", onclick: stop }, "Cancel") : null);

// Rows of texts, each with its name first.
export const table = (heads, rows, caption = null) =>
  el("table", {}, caption && el("caption", {}, caption), el("thead", {}, el("tr", {}, heads.map((one) => el("th", { scope: "col" }, one)))),
    el("tbody", {}, rows.map(([name, ...cells]) => el("tr", {}, el("th", { scope: "row" }, name), cells.map((one) => el("td", {}, one))))));

// What was claimed, and what is really kept.
export const claim = (before, words, after, kept, id) => [
  el("span", { class: "meant" }, before), el("span", { class: "arrow", "aria-hidden": "true" }, "→"),
  el("span", { class: kept ? "really kept" : "really" }, words, el("b", id ? { id } : {}, after))];
export const claimed = (epsilon) => ["claimed ", el("b", {}, `ε = ${upward(epsilon)}`)];

// What an equation costs that was found for noise of some ε.
export const forgotten = (one, epsilon) => (one.cost === null ? "" : ` With noise that ignores it, ε = ${epsilon} is really ${one.note.startsWith("at least") ? "at least " : ""}${one.cost_text}.`);

export function show(target, yes) {
  target.hidden = !yes;
}

export function stale(ids, yes) {
  for (const id of ids) find(id).classList.toggle("stale", yes);
}

// Four digits for people; a promise is rounded up, unless only a rounding error is dropped.
export function number(value, digits = 4) {
  if (value === null || value === undefined) return "∞";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e7 || size < 1e-4) return `${Number(value.toPrecision(digits)).toExponential()}`.replace("e", " · 10^").replace("+", "");
  return String(Number(value.toPrecision(digits)));
}

export const many = (count, word) => `${number(count, 9)} ${word}${count === 1 ? "" : "s"}`;

export function upward(value, digits = 4) {
  if (value === null || value === undefined) return "∞";
  const near = Number(value.toPrecision(digits));
  if (near >= value * (1 - 1e-9)) return number(near, digits);
  const step = 10 ** (Math.floor(Math.log10(Math.abs(value))) - digits + 1);
  return number(Number((value + step / 2).toPrecision(digits)), digits);
}

export const signed = (value) => (value > 0 ? "+" : "−") + number(Math.abs(value));

// "at most 73.2 of 100", never too low
export function chances(share) {
  const most = Math.ceil(share * 1000 - 1e-8) / 10;
  return most >= 100 ? "more than 99.9 of 100" : `at most ${most} of 100`;
}

export function later(wait, action) {
  let timer = 0;
  return (...given) => {
    clearTimeout(timer);
    timer = setTimeout(() => action(...given), wait);
  };
}

export const LAWS = { gaussian: "Gaussian", laplace: "Laplace", knorm: "K-norm" };
