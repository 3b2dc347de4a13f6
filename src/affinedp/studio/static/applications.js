// First views of control and consensus: the promise, noise over time, error over rounds.
import { ask, Refused, save } from "./api.js";
import { lines, network } from "./charts.js";
import { chances, claim, claimed, el, fill, find, later, LAWS, number, stale, upward, working } from "./dom.js";
import { sized, state, write } from "./state.js";

let open = "";

function field(name, label, properties = {}, tag = "input", ...inside) {
  const box = el(tag, { id: `f-${name}`, spellcheck: "false", autocomplete: "off", ...properties }, ...inside);
  // a menu may be set with a change alone; after an input it says the same again
  const said = () => { if (state[name] !== box.value) { state[name] = box.value; write(); asked(); } };
  for (const event of ["input", "change"]) box.addEventListener(event, said);
  return el("div", { class: "field" }, el("label", { for: `f-${name}` }, label), box);
}

const menu = (name, label, choices) => field(name, label, {}, "select", choices.map(([value, text]) => el("option", { value }, text)));
const numeric = { type: "text", inputmode: "decimal" };
const whole = { type: "text", inputmode: "numeric" };

// Systems and networks to begin with; each sets the fields that it names.
const EXAMPLES = {
  control: {
    "a vehicle": { A: "1 0.1; 0 1", C: "1 0", horizon: "100", reach: "1 0.1", neighbours: "time-local" },
    "a heated room": { A: "0.95", C: "1", horizon: "168", reach: "1", neighbours: "forward" },
    "two tanks": { A: "0.9 0.05; 0.1 0.9", C: "1 0; 0 1", horizon: "100", reach: "1", neighbours: "forward" },
  },
  consensus: {
    "a ring of ten": { links: "1 2\n2 3\n3 4\n4 5\n5 6\n6 7\n7 8\n8 9\n9 10\n10 1", rounds: "60" },
    "a street of six houses": { links: "1 2\n2 3\n3 4\n4 5\n5 6", rounds: "100" },
    "a meter and five homes": { links: "meter ann\nmeter ben\nmeter cleo\nmeter dan\nmeter eve", rounds: "40" },
  },
};

const MEANT = "ε bounds how sure anyone can become: smaller is more private. δ is a small probability that is added to what ε allows. μ is the largest change that is hidden.";

// What stands there is about an older input: grey, and its script is not handed out.
function outdated(view, yes) {
  stale([`${view}-verdict`, `${view}-pictures`], yes);
  find(`${view}-script`).disabled = yes;
}

const examples = (view) => el("p", { class: "quiet" }, "Try ", Object.entries(EXAMPLES[view]).flatMap(([words, fields], i) => [
  i ? ", " : "",
  el("button", { class: "link", onclick: () => { Object.assign(state, fields); write(); outdated(view, true); show(view); } }, words),
]), ".");

function panel(view, title, words, controls, pictures) {
  fill(find(`view-${view}`), el("h1", { class: "lead" }, title), el("div", { class: "columns" },
    el("div", { class: "steps" }, el("section", { class: "card", "aria-label": "What is known" }, el("h2", {}, words), examples(view), controls, el("p", { class: "warn", role: "alert", id: `${view}-wrong`, hidden: true }), el("div", { role: "status", id: `${view}-work` })),
      el("section", { class: "card", "aria-label": "Over time", id: `${view}-pictures` }, pictures)),
    el("aside", { class: "verdict", "aria-label": "Verdict" }, el("div", { class: "card", id: `${view}-verdict`, "aria-live": "polite" }))));
}

export function setUp() {
  const promises = menu("neighbours", "What must stay hidden", [["time-local", "the state at any one time"], ["forward", "a jump of the state, at any time"], ["initial", "the first state only"], ["manifold", "any number (Definition 4)"]]);
  panel("control", "Fresh noise at every step is averaged away.", "A plant sends its measurements", [
    el("div", { class: "grid wide" }, field("A", "A: how the state moves, x(t+1) = A x(t) + …", { rows: "3" }, "textarea"), field("C", "C: what is sent, y(t) = C x(t)", { rows: "3" }, "textarea")),
    el("div", { class: "grid" }, field("horizon", "Measurements", whole), field("reach", "μ: how far a state moves"), field("c_epsilon", "Privacy loss ε", numeric), field("c_delta", "δ", numeric)),
    promises, el("p", { class: "quiet" }, MEANT)],
    [el("h2", {}, "Noise over time"), el("figure", {}, el("div", { id: "control-lines" }), el("figcaption", { class: "keys", id: "control-keys" })), el("p", { class: "buttons" }, el("button", { class: "plain", id: "control-script" }, "Take the script home"))]);
  const links = field("links", "Links: two names per line, and a weight if you like", { rows: "8" }, "textarea");
  const file = el("input", { type: "file", id: "f-network", accept: ".txt,.csv,.edgelist,.edges" });
  file.addEventListener("change", async () => {
    const chosen = file.files[0];
    if (!chosen) return;
    if (chosen.size > 100_000) return wrong("consensus", "The page takes networks of up to 100 KB of text: use affinedp.consensus for larger ones.");
    state.links = (await chosen.text()).replaceAll("\r", "");
    find("f-links").value = state.links;
    write();
    asked();
  });
  const law = menu("n_law", "Law of the noise", [["auto", "the best"], ["gaussian", "Gaussian"], ["laplace", "Laplace"]]);
  panel("consensus", "Agents find their average without showing their values.", "A network of agents", [
    links, el("p", { class: "quiet" }, el("label", { class: "link file" }, "or read the links from a file", file)),
    el("div", { class: "grid" }, field("n_epsilon", "Privacy loss ε", numeric), field("n_delta", "δ", numeric), field("n_mu", "μ: how far a value moves", numeric), field("spread", "Values at first lie between 0 and", numeric), field("rounds", "Rounds", whole), law), el("p", { class: "quiet" }, MEANT)],
    [el("h2", {}, "Error over rounds"), el("figure", {}, el("div", { id: "consensus-lines" }), el("figcaption", { class: "keys" }, [["ours", "what an agent holds"], ["independent", "what it sends"], ["added", "corrected by its own noise"]].map(([kind, words]) => el("span", {}, el("i", { class: `key ${kind}` }), words)))), el("p", { class: "buttons" }, el("button", { class: "plain", id: "consensus-script" }, "Take the script home"))]);
}

function wrong(view, message) {
  const place = find(`${view}-wrong`);
  place.hidden = !message;
  place.textContent = message;
}

const follow = (view) => (progress, stop) => fill(find(`${view}-work`), working(progress, stop));

async function update() {
  const view = open;
  document.body.dataset.busy = "yes";
  try {
    if (view === "control") showControl((await ask("control", "/api/control", {
      A: state.A, C: state.C, mu: state.reach, neighbours: state.neighbours,
      horizon: sized(state.horizon), epsilon: sized(state.c_epsilon), delta: sized(state.c_delta),
    }, follow(view))).answer);
    else showConsensus((await ask("consensus", "/api/consensus", {
      links: state.links, rounds: sized(state.rounds), mu: sized(state.n_mu), spread: sized(state.spread), law: state.n_law,
      epsilon: sized(state.n_epsilon), delta: sized(state.n_delta),
    }, follow(view))).answer);
    outdated(view, false);
  } catch (error) {
    if (error.name === "AbortError") return;
    if (!(error instanceof Refused)) throw error;
    wrong(view, error.message);
  }
  fill(find(`${view}-work`));
  delete document.body.dataset.busy;
}

const soon = later(200, update);

function asked() {
  document.body.dataset.busy = "yes";
  outdated(open, true);
  soon();
}

export function show(view) {
  open = view;
  const names = view === "control" ? ["A", "C", "horizon", "reach", "neighbours", "c_epsilon", "c_delta"] : ["links", "rounds", "n_mu", "spread", "n_law", "n_epsilon", "n_delta"];
  for (const name of names) if (find(`f-${name}`) !== document.activeElement) find(`f-${name}`).value = state[name];
  update();
}

const rests = ({ neighbours, basis, notes = [], warnings }) => el("details", {}, el("summary", {}, "What the promise rests on"),
  el("ul", {}, [`The promise is about: ${neighbours}.`, `It rests on: ${basis}.`, ...notes, ...warnings].map((one) => el("li", {}, one))));

function showControl(answer) {
  wrong("control", answer.cautions.join("\n"));
  fill(find("control-verdict"),
    el("p", { class: "eyebrow" }, "Fresh noise, right for one measurement"),
    el("p", { class: "claim" }, claim(claimed(answer.claimed), "really ", upward(answer.really), answer.really <= answer.claimed * 1.000001)),
    el("p", { class: "said" }, `Sent ${number(Number(state.horizon), 9)} times, noise of ${number(answer.single)} is averaged away: an attacker guesses right `, el("b", { class: "sure" }, chances(answer.certainty_before)), " times."),
    el("hr"),
    el("p", { class: "eyebrow" }, answer.way[0].toUpperCase() + answer.way.slice(1)),
    el("p", { class: "claim" }, claim(claimed(answer.claimed), "really ", upward(answer.kept), true)),
    el("p", { class: "saved" }, el("b", {}, `${number(answer.error, 3)} instead of ${number(answer.fresh.error, 3)}`), " typical error: what fresh noise needs that truly keeps the promise."),
    el("p", { class: "said" }, "An attacker who hears everything, and starts from a coin flip, guesses right ", el("b", { class: "sure" }, chances(answer.certainty)), " times."),
    rests(answer));
  const series = answer.outputs.map((values, i) => ({ kind: i ? `ours more${Math.min(i, 3)}` : "ours", values }));
  series.push({ kind: "independent", values: answer.times.map(() => answer.fresh.sigma) });
  fill(find("control-lines"), lines(answer.times, series, { title: "Standard deviation of the noise on each measurement", below: "measurement" }));
  fill(find("control-keys"), el("span", {}, el("i", { class: "key ours" }), answer.way), el("span", {}, el("i", { class: "key independent" }), "fresh noise, same promise"));
  find("control-script").onclick = () => save("noise.py", answer.script, "text/x-python");
}

function showConsensus(answer) {
  wrong("consensus", "");
  fill(find("consensus-verdict"),
    el("p", { class: "eyebrow" }, `${answer.agents.length} agents, ${LAWS[answer.law]} noise`),
    el("p", { class: "claim" }, claim(["each sends its value with noise of ", el("b", {}, number(answer.noise, 3))], "really ", `ε = ${upward(answer.kept)}`, true)),
    el("div", { class: "pairplot" }, network(answer.agents, answer.places, answer.links, "The network")),
    el("p", { class: "saved" }, el("b", {}, number(answer.limits.message, 3)), " typical error of the average, read from the messages; ", el("b", {}, number(answer.limits.state, 3)), " from what an agent holds."),
    el("p", { class: "said" }, "An attacker who hears every message, and starts from a coin flip, guesses one agent’s change right ", el("b", { class: "sure" }, chances(answer.certainty)), " times."),
    rests(answer));
  const rounds = answer.errors.state.map((_, i) => i);
  fill(find("consensus-lines"), lines(rounds, [{ kind: "ours", values: answer.errors.state }, { kind: "independent", values: answer.errors.message }, { kind: "added", values: answer.errors.corrected }], { title: "Typical error of the average, round by round", below: "round" }));
  find("consensus-script").onclick = () => save("consensus.py", answer.script, "text/x-python");
}
