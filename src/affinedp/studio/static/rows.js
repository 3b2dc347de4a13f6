// Equations between rows: the page publishes each row by itself, so they are shown, written into
// the description of the table, and looked at as a whole.
import { ask, save } from "./api.js";
import { el, fill, find, forgotten, number, table, working } from "./dom.js";

let text = "";
let tied = 0;
let learnt = null;

// Why nothing is handed out that publishes row by row.
export const warning = (names) => (learnt?.between.some((one) => one.columns.some((name) => names.includes(name))) ? `Equations between rows were found in this file (step 1). ${learnt.tied}.` : "");

export function forget() {
  text = "";
  tied = 0;
  learnt = null;
}

export function learned(found) {
  learnt = found;
  tied = found.between.length;
}

// The description follows what was said in steps 1 to 3; without answers there is none.
export async function describe(question) {
  if (!learnt) return;
  try {
    write(question ? (await ask("describe", "/api/describe", { question, rows: learnt.rows })).answer.text : "", "");
  } catch (error) {
    if (error.name !== "AbortError") write("", error.message);
  }
}

function write(made, message) {
  text = made;
  const area = find("table-text");
  if (!area) return;
  area.value = text;
  area.rows = Math.min(18, text.split("\n").length + 1);
  for (const name of ["table-look", "table-save"]) find(name).disabled = !text;
  fill(find("table-said"), text ? null : el("p", { class: "warn" }, message || "Steps 1 and 2 ask something first."));
}

export function showRows(found, file) {
  const place = el("div", { id: "table-said", "aria-live": "polite" });
  const area = el("textarea", { id: "table-text", rows: String(Math.min(18, text.split("\n").length + 1)), spellcheck: "false", "aria-describedby": "table-hint", oninput: (event) => { text = event.target.value; } });
  area.value = text;
  return el("details", { id: "rows-card", open: tied > 0 },
    el("summary", {}, tied ? `Equations between rows: ${tied === 60 ? "60 or more" : tied} found` : "Equations between rows: none found"),
    found.between.length ? el("ul", { class: "found" }, found.between.slice(0, 8).map((one) => el("li", {}, el("code", {}, one.text), el("span", { class: "quiet" }, `${one.pattern}.${forgotten(one, found.epsilon)}`)))) : null,
    found.between.length > 8 ? el("p", { class: "quiet" }, `and ${found.between.length - 8} more`) : null,
    el("p", { id: "table-hint", class: "quiet" }, "The steps below publish every row by itself and do not cover equations between rows. If the public knows one, publish the table as a whole: keep below what the public knows, and save it."),
    el("label", { for: "table-text" }, "Description of the table"),
    area,
    el("p", { class: "buttons" },
      el("button", { class: "plain", id: "table-look", disabled: !text, onclick: () => look(file, place) }, "How accurate would it be?"),
      el("button", { class: "plain", id: "table-save", disabled: !text, onclick: () => save("table.toml", text, "application/toml") }, "Save table.toml")),
    place,
    el("p", { class: "quiet" }, "Publish it with ", el("code", {}, "affinedp release table.toml DATA --ledger budget.db -o published.csv"), "."));
}

async function look(file, place) {
  try {
    const told = (await ask("table", "/api/table", { file, text }, (progress, stop) => fill(place, working(progress, stop)))).answer;
    fill(place,
      told.tied ? null : el("p", { class: "warn" }, "Nothing in this description ties rows: hierarchy, row_totals or changes would."),
      table(["level", "numbers", "noise", "95 of 100 within"], told.levels.map((one) => [one.level, number(one.numbers, 9), number(one.noise), `± ${number(one.half)}`])),
      el("pre", { class: "promise" }, told.promise),
      el("p", { class: "quiet" }, "Nothing was spent, and no private number was used."));
  } catch (error) {
    if (error.name !== "AbortError") fill(place, el("p", { class: "warn", role: "alert" }, error.status === 409 ? "Cancelled." : error.message));
  }
}
