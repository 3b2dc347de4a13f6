// Pictures of numbers that were computed elsewhere: places on a page, and nothing more.
import { number, svg } from "./dom.js";

// narrow screens get narrow pictures, so that their words stay readable
const wide = () => (window.innerWidth < 560 ? 360 : 640);

function frame(width, height, title) {
  return svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": title, class: "chart" }, svg("title", {}, title));
}

const line = (points) => points.map(([x, y], i) => `${i ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");

// Two distributions that should look alike.
export function pair(curve, title) {
  const [width, height, base] = [400, 132, 112];
  const made = frame(width, height, title);
  if (!curve) return made;
  const [low, high] = [-4, 4 + curve.shift];
  const across = (value) => ((value - low) / (high - low)) * (width - 8) + 4;
  const most = Math.max(...curve.density);
  const up = (value) => base - (value / most) * (base - 10);
  const gaps = curve.x.slice(1).map((x, i) => x - curve.x[i]);
  const thick = curve.whole ? Math.max(1, Math.min(14, 0.4 * (across(Math.min(...gaps)) - across(0)))) : 0;
  for (const [kind, by] of [["gone", 0], ["here", curve.shift]]) {
    if (curve.whole) { // bars side by side: both have the same values
      for (const [i, x] of curve.x.entries()) {
        const left = across(x + by) - (kind === "gone" ? thick : 0);
        if (left >= 0 && left + thick <= width) made.append(svg("rect", { class: `point ${kind}`, x: left.toFixed(1), y: up(curve.density[i]).toFixed(1), width: thick.toFixed(1), height: (base - up(curve.density[i])).toFixed(1) }));
      }
      continue;
    }
    const points = curve.x.map((x, i) => [across(x + by), up(curve.density[i])]).filter(([x]) => x >= 0 && x <= width);
    made.append(svg("path", { class: `area ${kind}`, d: `${line(points)}L${points.at(-1)[0].toFixed(1)} ${base}L${points[0][0].toFixed(1)} ${base}Z` }));
    made.append(svg("path", { class: `curve ${kind}`, d: line(points) }));
  }
  made.append(svg("line", { class: "axis", x1: 4, x2: width - 4, y1: base, y2: base }));
  made.append(svg("text", { class: "tick", x: width / 2, y: height - 4, "text-anchor": "middle" }, curve.whole ? "what an attacker sees: whole numbers" : "what an attacker sees"));
  return made;
}

// Half the width of what is drawn around a name, and how much of a name is always shown.
const half = (name) => Math.max(16, name.length * 3.9 + 8);
const READABLE = 7;

const cut = (text, most = 18) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

// Horizontal bars: ours, and others for the same promise.
export function bars(rows, kinds, title) {
  const shown = rows.slice(0, 24);
  const thick = kinds.length > 2 ? 8 : 10;
  const each = kinds.length * thick + 14;
  const width = wide();
  const left = width < 500 ? 100 : 150;
  const height = shown.length * each + 8;
  const made = frame(width, height, title);
  const most = Math.max(...shown.flatMap((row) => row.values), 1e-300);
  shown.forEach((row, i) => {
    const y = i * each + 6;
    made.append(svg("text", { class: "name", x: left - 10, y: y + (kinds.length * thick) / 2 + 4, "text-anchor": "end" }, cut(row.name, (left - 10) / 8), svg("title", {}, row.name)));
    row.values.forEach((value, k) => {
      const long = Math.max((value / most) * (width - left - 60), value > 0 ? 1.5 : 0);
      made.append(svg("rect", { class: `bar ${kinds[k]}`, x: left, y: y + k * thick, width: long, height: thick - 2, rx: 2 }));
      if (k === 0 || kinds.length < 3 || value === Math.max(...row.values))
        made.append(svg("text", { class: `value ${kinds[k]}`, x: left + long + 6, y: y + k * thick + thick - 1.5 }, number(value, 3)));
    });
  });
  return made;
}

// Numbers and the equations between them; what moves in the worst pair is red.
export function graph(drawing, moved, title) {
  const levels = [...new Set(drawing.entries.map((entry) => entry.level))].sort((a, b) => a - b);
  const rows = levels.map((level) => drawing.entries.filter((entry) => entry.level === level));
  const tall = 92;
  const height = rows.length * tall + (rows.length === 1 ? 70 : 0);
  // a row that needs more room than the page has is scrolled
  const room = (row) => row.length * (2 * half(cut(row.reduce((most, entry) => (entry.name.length > most.length ? entry.name : most), ""), READABLE)) + 8) + 40;
  const width = Math.max(wide(), ...rows.map(room));
  const made = frame(width, height, title);
  if (width > wide()) {
    made.classList.add("broad");
    made.setAttribute("width", width);
  }
  const place = new Map();
  rows.forEach((row, k) =>
    row.forEach((entry, i) => place.set(entry.place, [((i + 0.5) / row.length) * (width - 40) + 20, k * tall + 34 + (rows.length === 1 ? 70 : 0)])),
  );
  const red = new Map(moved.map((one) => [one.place, one.move]));
  const links = svg("g");
  const knots = svg("g");
  const knotted = [];
  for (const equation of drawing.equations) {
    const spots = equation.members.map((entry) => place.get(entry)).filter(Boolean);
    let x = spots.reduce((sum, spot) => sum + spot[0], 0) / spots.length;
    const top = Math.min(...spots.map((spot) => spot[1]));
    const bottom = Math.max(...spots.map((spot) => spot[1]));
    // between two rows, where no number stands, and beside the signs that stand there
    const y = top === bottom ? top - 56 : bottom - tall / 2;
    while (knotted.some((other) => other[1] === y && Math.abs(other[0] - x) < 26)) x += 26;
    knotted.push([x, y]);
    for (const entry of equation.members) {
      const spot = place.get(entry);
      if (spot) links.append(svg("line", { class: red.has(entry) ? "tie moved" : "tie", x1: x, y1: y, x2: spot[0], y2: spot[1] }));
    }
    knots.append(svg("circle", { class: "knot", cx: x, cy: y, r: 11 }, svg("title", {}, equation.text)), svg("text", { class: "sign", x, y: y + 4.5, "text-anchor": "middle" }, "="));
  }
  made.append(links, knots);
  for (const entry of drawing.entries) {
    const [x, y] = place.get(entry.place);
    const move = red.get(entry.place);
    const slot = (width - 40) / rows[levels.indexOf(entry.level)].length;
    const name = cut(entry.name, Math.min(Math.floor((slot - 23) / 7.8), 16));
    const side = half(name);
    made.append(svg("rect", { class: move ? "entry moved" : "entry", x: x - side, y: y - 14, width: 2 * side, height: 28, rx: 14 }, svg("title", {}, entry.name)));
    made.append(svg("text", { class: move ? "label moved" : "label", x, y: y + 4.5, "text-anchor": "middle" }, name));
    if (!move) continue;
    const words = (move > 0 ? "+" : "−") + number(Math.abs(move), 3);
    // beside it, or below where its neighbours leave no room
    const beside = side + 6 + words.length * 8 < slot - side;
    made.append(svg("text", beside ? { class: "move", x: x + side + 4, y: y + 4.5 } : { class: "move", x, y: y + 29, "text-anchor": "middle" }, words));
  }
  return made;
}

// Round numbers from 0 up, about five of them.
function ticks(most) {
  const rough = most / 5;
  const unit = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].find((one) => one * unit >= rough) * unit;
  return Array.from({ length: Math.floor(most / step + 1e-9) + 1 }, (_, k) => k * step);
}

// Lines over time or rounds.
export function lines(x, series, { title, below, unit = "" }) {
  const [width, height, left, base] = [wide(), 244, 52, 196];
  const made = frame(width, height, title);
  const most = Math.max(...series.flatMap((one) => one.values), 1e-300) * 1.08;
  const last = Math.max(x.at(-1), 1);
  const across = (value) => left + (value / last) * (width - left - 20);
  const up = (value) => base - (value / most) * (base - 14);
  for (const value of ticks(most)) {
    made.append(svg("line", { class: "grid", x1: left, x2: width - 10, y1: up(value), y2: up(value) }));
    made.append(svg("text", { class: "tick", x: left - 8, y: up(value) + 4, "text-anchor": "end" }, number(value, 3) + unit));
  }
  for (const value of ticks(last)) made.append(svg("text", { class: "tick", x: across(value), y: base + 19, "text-anchor": "middle" }, number(value)));
  for (const one of series) {
    const points = one.values.map((value, i) => [across(x[i]), up(value)]);
    made.append(svg("path", { class: `curve ${one.kind}`, d: line(points.length > 1 ? points : [points[0], [width - 20, points[0][1]]]) }));
  }
  made.append(svg("text", { class: "tick", x: (width + left) / 2, y: height - 6, "text-anchor": "middle" }, below));
  return made;
}

export function network(names, places, links, title) {
  const [width, height, edge] = [400, 300, 42];
  const made = frame(width, height, title);
  const [xs, ys] = [places.map((spot) => spot[0]), places.map((spot) => spot[1])];
  const middle = (values) => (Math.min(...values) + Math.max(...values)) / 2;
  const spread = (values) => Math.max(...values) - Math.min(...values) || 1e-9;
  const unit = Math.min((width - 2 * edge) / spread(xs), (height - 2 * edge) / spread(ys));
  const across = (value) => width / 2 + (value - middle(xs)) * unit;
  const down = (value) => height / 2 + (value - middle(ys)) * unit;
  for (const [a, b] of links)
    made.append(svg("line", { class: "tie", x1: across(xs[a]), y1: down(ys[a]), x2: across(xs[b]), y2: down(ys[b]) }));
  const small = names.length > 40;
  names.forEach((name, i) => {
    const shown = small ? "" : cut(name, names.length > 16 ? 3 : READABLE);
    const [side, tall] = small ? [4, 4] : [Math.max(13, shown.length * 3.9 + 4), 13];
    made.append(svg("rect", { class: "entry", x: across(xs[i]) - side, y: down(ys[i]) - tall, width: 2 * side, height: 2 * tall, rx: tall }, svg("title", {}, name)));
    if (!small) made.append(svg("text", { class: "label", x: across(xs[i]), y: down(ys[i]) + 4, "text-anchor": "middle" }, shown));
  });
  return made;
}
