// Functions of what was published from this page, such as shares, with intervals.
import { ask } from "./api.js";
import { el, fill, find, later, number, show, table, working } from "./dom.js";

let published = null;

export function setUp() {
  find("formula").addEventListener("input", later(300, look));
}

// The newest release; what was computed of an older one goes.
export function offer(ticket, names, file) {
  published = ticket;
  const quoted = (name) => (/^[\p{L}_][\p{L}\p{N}_]*$/u.test(name) ? name : `\`${name.replaceAll("`", "``")}\``);
  fill(find("formula-example"), `${quoted(names[0])} / ${quoted(names.at(-1))}`);
  fill(find("functions-hint"), `Of what was published of ${file}; they are free: no budget is spent.`);
  show(find("functions-asked"), true);
  look();
}

export function open() {
  find("functions").open = true;
  find("formula").focus();
  find("functions").scrollIntoView({ block: "center" });
}

async function look() {
  const place = find("formula-said");
  const formula = find("formula").value.trim();
  fill(place);
  if (!formula) return;
  try {
    const told = (await ask("function", "/api/release/function", { ticket: published, formula }, (progress) => fill(place, working(progress)))).answer;
    const values = told.values.map((value) => value.replaceAll("-inf", "−∞").replaceAll("inf", "∞"));
    fill(place, told.rows === 1
      ? el("p", { class: "said" }, `${formula} = `, el("b", { id: "share" }, values[0]))
      : table(["row", formula], values.map((value, i) => [String(i + 1), value])),
      told.rows > values.length ? el("p", { class: "quiet" }, `The first ${values.length} of ${number(told.rows, 9)} rows; all of them: affinedp report mechanism.json published.csv --function.`) : null,
      told.warnings.map((words) => el("p", { class: "warn" }, words)),
      el("p", { class: "quiet" }, `${told.how}.`));
  } catch (error) {
    if (error.name !== "AbortError") fill(place, el("p", { class: "warn", role: "alert" }, error.message));
  }
}
