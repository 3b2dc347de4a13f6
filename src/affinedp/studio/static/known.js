// Step 1: equations as text, checked while they are typed, or suggested by a file.
import { ask, forget, Refused, upload } from "./api.js";
import { el, fill, find, forgotten, many, number, show, working } from "./dom.js";
import * as rows from "./rows.js";
import { also, DEFAULTS, labels, state } from "./state.js";

const SIZES = [[1e9, "GB"], [1e6, "MB"], [1e3, "KB"]];
// Columns of a file that are published before anything else is said.
const MOST_AT_ONCE = 40;
let limit = 50_000_000;
let outline = null;
let found = null;
// Equations that are not public: they stay in this tab, and out of the address, which people hand on.
let rejected = [];

const bytes = (size) => {
  const [unit, word] = SIZES.find(([least]) => size >= least) ?? [1, "bytes"];
  return `${number(size / unit, 3)} ${word}`;
};

export function showCheck(answer) {
  fill(find("equations-said"), answer.message);
  find("equations-said").className = answer.ok ? "said" : "said bad";
  const told = answer.lines.filter((one) => one.status !== "fine");
  fill(
    find("equations-wrong"),
    told.map((one) => {
      const source = state.equations.split("\n")[one.line] ?? one.text;
      const from = one.position === undefined ? 0 : Math.max(0, one.position - 40);
      const piece = source.slice(from, from + 80);
      const caret = one.position === undefined ? [] : ["\n", " ".repeat(one.position - from), el("span", { class: "caret" }, "^")];
      return el("div", { class: `line ${one.status}` }, el("p", {}, `Line ${one.line + 1}: ${one.message}`), el("pre", {}, piece, ...caret));
    }),
  );
  find("equations").setAttribute("aria-invalid", String(!answer.ok));
}

export function setUp(changed, most) {
  limit = most;
  find("equations").addEventListener("input", (event) => {
    state.equations = event.target.value;
    refresh();
    changed();
  });
  find("also").addEventListener("input", (event) => {
    const names = event.target.value.split(",").map((name) => name.trim()).filter(Boolean);
    const rest = new Set([...also().filter((name) => mentioned().has(name)), ...names]);
    state.also = rest.size ? JSON.stringify([...rest]) : "";
    changed();
  });
  for (const button of document.querySelectorAll("[data-example]"))
    button.addEventListener("click", () => {
      state.equations = button.dataset.example;
      state.hidden = button.dataset.who;
      Object.assign(state, { also: "", labels: "", ask: "", row: "", moves: "" });
      refresh();
      changed();
    });
  for (const choice of document.querySelectorAll("input[name=row-is]"))
    choice.addEventListener("change", () => { state.row = choice.value; refresh(); changed(); });
  window.addEventListener("resize", grow);
  find("file").addEventListener("change", (event) => choose(event.target.files[0], changed));
  if (state.file) peek(changed);
}

function grow() {
  const area = find("equations");
  area.rows = Math.min(14, Math.max(3, area.value.split("\n").length));
  while (area.rows < 14 && area.scrollHeight > area.clientHeight) area.rows += 1; // lines that wrap
}

export function refresh() {
  if (find("equations").value !== state.equations) find("equations").value = state.equations;
  const alone = also().filter((name) => !mentioned().has(name));
  if (find("also") !== document.activeElement) find("also").value = alone.join(", ");
  if (state.also) find("also-row").open = alone.length > 0;
  for (const choice of document.querySelectorAll("input[name=row-is]")) choice.checked = choice.value === state.row;
  show(find("row-is"), state.ask !== "" && !(outline && outline.rows <= 1));
  show(find("row-is-said"), state.ask !== "" && state.row === "person");
  grow();
}

function say(...content) {
  show(find("file-card"), content.length > 0);
  fill(find("file-card"), ...content);
}

async function choose(file, changed) {
  find("file").value = "";
  if (!file) return;
  if (file.size > limit) {
    say(el("p", { class: "warn", role: "alert" }, `${file.name} has ${bytes(file.size)}: the page takes at most ${bytes(limit)}. For larger files use “affinedp discover” on the command line.`));
    return;
  }
  say(el("p", { role: "status" }, `Reading ${file.name} …`));
  try {
    if (state.file) forget(state.file);
    state.file = (await upload(file)).file;
    rejected = [];
    rows.forget();
    await peek(changed);
    if (state.file) about(outline);
  } catch (error) {
    failed(error);
  }
  changed();
}

// From now on the page is about this table: about people in it, until somebody says otherwise.
// Examples go; so does every equation that names something else than its columns.
function about({ columns, rows: count }) {
  const examples = [...document.querySelectorAll("[data-example]")].map((button) => button.dataset.example);
  const own = examples.includes(state.equations.trim()) ? [] : written().filter((line) => named(line).every((name) => columns.includes(name)));
  state.equations = own.join("\n");
  state.also = columns.length <= MOST_AT_ONCE ? JSON.stringify(columns) : "";
  // what a column holds is not known: how much one person counts for in it is asked
  Object.assign(state, { ask: "1", moves: "", labels: "", row: count > 1 ? "" : "group" });
  if (state.hidden === DEFAULTS.hidden) state.hidden = "person";
  refresh();
}

function failed(error) {
  if (error.name === "AbortError") return;
  state.file = "";
  say(el("p", { class: "warn", role: "alert" }, error.message));
}

async function peek(changed) {
  found = null;
  try {
    const told = await ask("peek", `/api/files/${state.file}`, null, undefined, "GET");
    outline = { name: told.name, ...told.answer };
    showFile(changed);
  } catch (error) {
    failed(error);
  }
}

function showFile(changed) {
  const drop = el("button", { class: "plain", onclick: () => { forget(state.file); state.file = state.ask = state.row = state.labels = ""; found = null; rejected = []; rows.forget(); say(); refresh(); changed(); } }, "Forget it");
  const columns = outline.columns.slice(0, 40).map((name) => el("li", {}, name));
  if (outline.columns.length > 40) columns.push(el("li", {}, `and ${outline.columns.length - 40} more`));
  const look = el("button", { class: "primary small", id: "discover", onclick: () => discover(changed) }, "Look for equations in it");
  say(
    el("p", {}, el("b", {}, outline.name), ` · ${many(outline.rows, "row")}, ${many(outline.columns.length, "column")}, ${bytes(outline.bytes)}`),
    el("ul", { class: "chips", "aria-label": "Columns" }, columns),
    found ? null : el("p", { class: "quiet" }, "So far only the names of the columns are shown. Looking for equations compares the numbers; what it finds is for you alone."),
    el("p", { class: "buttons" }, found ? null : look, drop),
    el("div", { id: "found", "aria-live": "polite" }, found ? suggestions(changed) : null),
    found ? rows.showRows(found, state.file) : null,
  );
}

async function discover(changed) {
  const place = find("found");
  try {
    const question = { file: state.file, known: [], epsilon: Number(state.epsilon) || 1, delta: Number(state.delta) || 0 };
    const told = (await ask("discover", "/api/discover", question, (progress, stop) => fill(place, working(progress, stop)))).answer;
    rows.learned(told);
    found = { ...told, epsilon: question.epsilon }; // the costs are about this ε, whatever comes later
    if (state.also) state.also = JSON.stringify(told.numbers); // labels are no numbers
    refresh();
    showFile(changed);
    changed();
  } catch (error) {
    if (error instanceof Refused) fill(place, el("p", { class: "warn", role: "alert" }, error.message));
  }
}

const named = (line) => [...line.matchAll(/`((?:[^`]|``)*)`|[\p{L}_][\p{L}\p{N}_]*/gu)].map((one) => one[1]?.replaceAll("``", "`") ?? one[0]);
const mentioned = () => new Set(written().filter((line) => !line.startsWith("#")).flatMap(named));
const written = () => state.equations.split("\n").map((line) => line.trim()).filter(Boolean);

function suggestions(changed) {
  const no = rejected;
  const change = (lines, refused) => {
    state.equations = lines.join("\n");
    rejected = refused;
    refresh();
    showFile(changed);
    changed();
  };
  // no data says in which numbers a person is counted: whoever accepts a total for people says it
  const people = ["person", "replace"].includes(state.hidden);
  const text = (one) => (people && one.total ? one.total : one.text);
  const others = (one) => written().filter((line) => line !== one.text && line !== one.total);
  const accept = (one) => change([...others(one), text(one)], no.filter((other) => other !== one.text));
  const reject = (one) => change(others(one), [...no.filter((other) => other !== one.text), one.text]);
  const every = () => change([...found.equations.reduce((lines, one) => lines.filter((line) => line !== one.text && line !== one.total), written()), ...found.equations.map(text)], []);
  const all = el("button", { class: "plain", id: "accept-all", onclick: every }, "Everyone knows all of these");
  const listed = (equations, doubt) => el("ul", { class: "found" }, equations.map((one) => {
      const taken = [one.text, one.total].some((form) => form && written().includes(form));
      const refused = no.includes(one.text);
      return el("li", { class: taken ? "taken" : refused ? "refused" : "" },
        el("code", {}, text(one)),
        el("span", { class: "quiet" }, `${one.pattern}, holds in ${one.holds} rows${doubt}.${forgotten(one, found.epsilon)}`),
        el("span", { class: "buttons" },
          el("button", { class: "plain", "aria-pressed": String(taken), "aria-label": `Everyone knows ${text(one)}`, onclick: () => accept(one) }, "Everyone knows it"),
          el("button", { class: "plain", "aria-pressed": String(refused), "aria-label": `Not public: ${text(one)}`, onclick: () => reject(one) }, "Not public")));
    }));
  const publish = (name) => {
    const known = labels();
    state.labels = JSON.stringify(known.includes(name) ? known.filter((one) => one !== name) : [...known, name]);
    showFile(changed);
    changed();
  };
  return [
    el("h3", {}, heading(found)),
    listed(found.equations, ""),
    found.equations.length > 1 ? el("p", { class: "buttons" }, all) : null,
    people && found.equations.some((one) => one.total) ? el("p", { class: "quiet" }, "Accepting a total says that people are counted in its parts.") : null,
    found.doubtful.length ? el("div", { id: "doubtful" }, el("p", { class: "warn" }, "These may hold by chance. Take one only if you know that it must hold: noise for an equation that is none protects something else than your data."), listed(found.doubtful, "; it may be chance")) : null,
    found.labels.length ? el("div", { id: "labels" }, el("p", { class: "quiet" }, "Read as labels, not as numbers. Is one public? Then it can stand beside the published numbers, as it is, without noise."),
      el("p", { class: "buttons" }, found.labels.slice(0, 12).map((name) => el("button", { class: "plain", "aria-pressed": String(labels().includes(name)), "aria-label": `Publish ${name} as it is`, onclick: () => publish(name) }, `Publish ${name} as it is`)))) : null,
  ];
}

function heading({ equations, doubtful }) {
  if (equations.length) return "Equations found in it: which of them does everyone know?";
  if (doubtful.length === 1) return "1 equation holds, but on too few rows or numbers to tell it from chance:";
  if (doubtful.length) return `${doubtful.length} equations hold, but on too few rows or numbers to tell them from chance:`;
  return "No equation between columns was found. That there is none is not proved.";
}

// Columns whose numbers were looked at and can hardly be anything but counts.
export const counts = () => found?.counts ?? [];
export const looked = () => found !== null;
export const fileName = () => (outline && state.file ? outline.name : "");
