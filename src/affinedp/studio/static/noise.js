// Steps 2 and 3 and the verdict: what forgetful noise gives away, and the noise that does not.
import { bars, graph, pair } from "./charts.js";
import { chances, claim, claimed, doing, el, fill, find, number, show, signed, stale, table, upward } from "./dom.js";
import { counts, looked } from "./known.js";
import { moves, setMoves, sized, state, unsaid } from "./state.js";

const MOST_BOXES = 60;
// ε from 0.01 to 20 on the slider, in equal ratios
const [LEAST, MOST] = [Math.log(0.01), Math.log(20)];
let shown = null;
// the columns that fields stand for: somebody may be writing in them
let fields = "";

export const current = () => shown;

export function showNames(names, changed) {
  const own = moves();
  const asked = state.ask !== "";
  const open = (find("each").checked || asked) && state.hidden !== "directions";
  show(find("moves"), open);
  show(find("counts"), open && asked);
  const left = counts().filter((name) => names.includes(name) && !(name in own));
  show(find("counts-all"), left.length > 0);
  find("counts-all").textContent = `These count people, μ = 1: ${left.join(", ")}`;
  find("counts-all").onclick = () => { setMoves({ ...Object.fromEntries(left.map((name) => [name, 1])), ...moves() }); changed(); };
  show(find("counts-later"), !looked());
  find("counts").classList.toggle("asked", unsaid(names).length > 0);
  if (!open) return;
  const named = names.slice(0, asked ? names.length : MOST_BOXES);
  if (fields !== JSON.stringify([asked, named])) fill(find("moves"), named.map((name, i) =>
    el("label", { class: "box" }, el("span", {}, name),
      el("input", { type: "text", inputmode: "decimal", autocomplete: "off", id: `move-${i}`, oninput: (event) => {
        const size = sized(event.target.value);
        const next = moves();
        if (event.target.value.trim() !== "" && (asked || size !== sized(state.mu))) next[name] = size;
        else delete next[name];
        setMoves(next);
        changed();
      } }))));
  fields = JSON.stringify([asked, named]);
  named.forEach((name, i) => {
    const box = find(`move-${i}`);
    if (box !== document.activeElement) box.value = String(own[name] ?? (asked ? "" : state.mu));
  });
}

export function refresh() {
  for (const choice of document.querySelectorAll("input[name=hidden]")) choice.checked = choice.value === state.hidden;
  for (const name of ["mu", "counted", "directions", "epsilon"])
    if (find(name) !== document.activeElement && find(name).value !== state[name]) find(name).value = state[name];
  find("delta").value = state.delta;
  if (find("delta").value !== state.delta) find("delta").append(el("option", { value: state.delta, selected: true }, state.delta));
  find("epsilon-slide").value = String(Math.round((1000 * (Math.log(Number(state.epsilon) > 0 ? Number(state.epsilon) : 1) - LEAST)) / (MOST - LEAST)));
  if (state.moves) find("each").checked = true;
  find("mu-label").textContent = state.hidden === "definition4" ? "How far one number moves (μ)" : "How much one person counts for (μ)";
  show(find("mu-row"), state.hidden !== "directions" && !state.ask);
  show(find("mu-words"), state.hidden !== "directions");
  show(find("counted-row"), state.hidden === "person");
  show(find("directions-row"), state.hidden === "directions");
}

export const slid = (value) => String(Number(Math.exp(LEAST + ((MOST - LEAST) * value) / 1000).toPrecision(2)));

const LEAK = ["verdict-leak", "graph-figure", "hidden-words", "bare"];
const DESIGN = ["verdict-fixed", "design-shown", "step-4", "error", "error-slide"];

// What was computed of an older input is grey, and not handed out, until an answer to this one comes,
// whatever the reason that there is none.
export function outdated(input = "") {
  stale([...LEAK, ...DESIGN].filter((id) => !input || !id.startsWith(input)), true);
  stale(["epsilon", "epsilon-slide"], input === "error");
  for (const button of document.querySelectorAll("[data-file]")) button.disabled = true;
}

// The number that a promise is about: how sure an attacker can become.
const certainty = (answer) => [
  "Whoever must tell whether the secret changed goes from a coin flip, 50 of 100, to ",
  el("b", { class: "sure" }, chances(answer.certainty)),
  answer.delta ? " right guesses." : " sure, whatever comes out.",
];

export function showLeak(answer) {
  find("fix").disabled = false;
  fill(find("hidden-words"), `In exact words: ${answer.neighbours}.`);
  const place = new Map(answer.drawing.entries.map((entry) => [entry.name, entry.place]));
  const moved = answer.worst.map((one) => ({ ...one, place: place.get(one.name) }));
  const words = answer.worst.map((one) => `${one.name} ${signed(one.move)}`).join(", ");
  fill(find("graph"), graph(answer.drawing, moved, `Numbers and equations; hardest to hide: ${words}`));
  const more = answer.drawing.left_out ? ` ${answer.drawing.left_out} other numbers are not drawn.` : "";
  fill(find("graph-caption"), "Hardest to hide: ", el("b", { class: "bad" }, words), `. Ordinary noise sees each number alone; an attacker sees them together.${more}`);
  show(find("bare"), answer.public.length > 0);
  fill(find("bare"), `Everyone can compute ${answer.public.join(", ")} from the equations: no noise can hide that.`);
  fill(find("claim"), claim(claimed(answer.claimed), answer.exact ? "really " : "really up to ", upward(answer.really), answer.kept, "really"));
  fill(find("pair-before"), pair(answer.curve, "What an attacker sees of ordinary noise, with and without the secret change"));
  fill(find("odds-before"), certainty(answer));
  find("verdict-leak").classList.toggle("bad", !answer.kept);
  stale(LEAK, false);
}

export function waitLeak(progress, stop) {
  noLeak(doing({ ...progress, note: "looking for the pair that is hardest to hide" }));
  find("claim").append(el("button", { class: "plain", onclick: stop }, "Cancel"));
}

export function noLeak(message) {
  stale(LEAK, false);
  find("fix").disabled = true;
  find("verdict-leak").classList.remove("bad");
  fill(find("claim"), el("span", { class: "really wait" }, message));
  fill(find("pair-before"));
  fill(find("odds-before"));
  fill(find("graph"));
  fill(find("graph-caption"));
  fill(find("hidden-words"));
  show(find("bare"), false);
}

export function showDesign(answer, changed) {
  shown = answer;
  show(find("design-shown"), true);
  show(find("design-said"), false);
  stale(DESIGN, false);
  const box = find("error");
  if (box !== document.activeElement) box.value = number(answer.error, 5);
  find("error-slide").value = String(Math.round((1000 * (Math.log(answer.error / answer.independent.error) + 3)) / 6));
  find("error-slide").dataset.unit = String(answer.independent.error);
  fill(find("odds"), certainty(answer), ` Nothing they can see becomes more than ${upward(answer.factor, 3)} times as likely${answer.delta ? `, plus a chance of ${state.delta}` : ""} because of the secret change.`);
  const bare = find("bare");
  if (answer.unprotected.length && bare.hidden) {
    show(bare, true);
    fill(bare, `Comes out without noise, because no hidden change moves it: ${answer.unprotected.join("; ")}.`);
  }
  showLaws(answer, changed);
  showBars(answer);
  showFinePrint(answer);
  showFixed(answer);
}

const SHAPES = {
  gaussian: "a bell, best for many numbers",
  laplace: "a peak with equal falls, number by number",
  knorm: "shaped like the changes that it must hide",
  staircase: "a Laplace peak cut into steps",
  productnorm: "a K-norm for several public sums at once",
};

function showLaws(answer, changed) {
  const named = (law) => answer.laws[law] + (answer.whole && law === answer.law ? " on integers" : "");
  const errors = new Map(answer.alternatives.map((one) => [one.law, one]));
  const options = ["auto", ...Object.keys(answer.laws)].map((law) => {
    const other = errors.get(law);
    let words = "";
    if (law === "auto") words = state.law === "auto" ? `takes ${named(answer.law)}: error ${number(answer.error)}` : "the least error of all";
    else if (law === answer.law) words = `error ${number(answer.error)}`;
    else if (other?.designed) words = `error ${number(other.error)}`;
    else if (other) words = other.error ? `at least ${number(other.error)}` : "not designed";
    else if (answer.whole) words = "not whole";
    const barred = law === "gaussian" && !Number(state.delta);
    if (barred) words = "needs δ > 0";
    words = [SHAPES[law], words].filter(Boolean).join(": ");
    return el("label", { class: barred ? "barred" : "" },
      el("input", { type: "radio", name: "law", value: law, checked: state.law === law, disabled: barred, onchange: () => { state.law = law; changed(); } }),
      el("b", {}, law === "auto" ? "The best" : named(law)), el("span", {}, words));
  });
  fill(find("laws"), el("legend", { class: "sr" }, "Law of the noise"), options);
  const bound = answer.lower_bound ? `No noise of any law can do better than ${Math.floor(100 * answer.least_share)} % of this error. ` : "";
  const gap = answer.gap !== null ? "Of all Gaussian noise this is the least, certified." : "";
  fill(find("least"), bound + gap);
}

function showBars(answer) {
  const words = {
    ours: `this noise (${number(answer.error)} typical)`,
    independent: `independent noise, same promise (${number(answer.independent.error)})`,
    added: answer.added ? `noise on the cells, then add up (${number(answer.added.error)})` : "",
  };
  const kinds = ["ours", ...answer.others];
  const rows = answer.entries.map((one) => ({ name: one.name, values: [one.noise, ...one.others] }));
  fill(find("bars"), bars(rows, kinds, "Standard deviation of the noise on each number"));
  const left = rows.length - 24;
  fill(find("bars-keys"), kinds.map((kind) => el("span", {}, el("i", { class: `key ${kind}` }), words[kind])), left > 0 ? el("span", {}, `${left} more numbers in the intervals below.`) : null);
  const heads = ["level", "numbers", "this noise", "independent", ...(answer.added ? ["cells, added up"] : [])];
  const levels = answer.levels.map((one) => [one.level === 0 ? "top totals" : `${one.level} below`, number(one.numbers, 9), ...one.noise.map((value) => number(value))]);
  fill(find("levels"), levels.length > 1 ? table(heads, levels, "Typical noise by level") : null);
  fill(find("intervals"), table(["number", "published number"], answer.entries.slice(0, 200).map((one) => [one.name, `± ${number(one.half)}`])), el("p", { class: "quiet" }, `Each by itself: ${answer.interval}.`));
}

function showFinePrint(answer) {
  const items = [
    `The promise is about: ${answer.neighbours}.`,
    `It rests on: ${answer.basis}.`,
    `ε is ${answer.exact ? "exact" : "an upper bound"}: ${upward(answer.kept, 6)} at δ = ${state.delta}.`,
    answer.equations.length ? `What is published obeys: ${answer.equations.slice(0, 12).join("; ")}.` : "",
    answer.unprotected.length ? `Published without noise: ${answer.unprotected.join("; ")}.` : "",
    ...answer.notes,
    ...answer.warnings,
  ];
  fill(find("fine-print"), el("ul", {}, items.filter(Boolean).map((one) => el("li", {}, one))));
}

export function showWaiting(note) {
  fill(find("claim-fixed"), el("span", { class: "really wait" }, note));
}

export function showFixed(answer) {
  const on = state.fixed === "1";
  show(find("verdict-fixed"), on);
  find("fix").textContent = on ? "Show the leak alone" : "Fix";
  find("fix").classList.toggle("primary", !on);
  find("fix").classList.toggle("plain", on);
  if (!on) return;
  if (!answer) {
    fill(find("claim-fixed"), el("span", { class: "really wait" }, "designing …"));
    fill(find("pair-after"));
    fill(find("odds-after"));
    fill(find("saved"));
    return;
  }
  fill(find("claim-fixed"), claim(claimed(Number(state.epsilon)), answer.exact ? "really " : "really at most ", upward(answer.kept), true, "kept"));
  fill(find("pair-after"), pair(answer.curve, "What an attacker sees of the designed noise, with and without the secret change"));
  fill(find("odds-after"), certainty(answer));
  const share = Math.floor(100 * answer.saved + 1e-6);
  fill(find("saved"), el("b", {}, `${number(answer.error, 3)} instead of ${number(answer.independent.error, 3)}`), ` typical error`,
    share > 0 ? `: ${share} % less squared error than honest independent noise` : ", as honest independent noise", answer.equations.length ? ", and the numbers still add up." : ".");
}
