// From the address to the page, and from every change back to the address.
import { ask, get, leave, Refused, whenUnreachable } from "./api.js";
import * as applications from "./applications.js";
import { doing, el, fill, find, later, show } from "./dom.js";
import * as home from "./home.js";
import * as known from "./known.js";
import * as noise from "./noise.js";
import * as rows from "./rows.js";
import { question, read, rowUnsaid, sized, state, unsaid, write } from "./state.js";

const VIEWS = ["numbers", "control", "consensus"];
let names = [];
// counts changes: an answer to an older question is not shown
let turn = 0;
// Gaussian noise for tables up to this size was found in seconds; for larger ones it may take minutes.
const MOST_FOR_SECONDS = 36;

function chooseView() {
  const view = VIEWS.includes(state.view) ? state.view : "numbers";
  for (const one of VIEWS) {
    show(find(`view-${one}`), one === view);
    find(`tab-${one}`).setAttribute("aria-selected", String(one === view));
    find(`tab-${one}`).tabIndex = one === view ? 0 : -1;
  }
  if (view === "numbers") update();
  else applications.show(view);
}

// What a design is doing, and for how long; whoever waits long learns of the quick way.
const worker = () => (progress, stop) => {
  const slow = progress.seconds > 6 && state.law !== "gaussian" && names.length <= MOST_FOR_SECONDS ? " (Gaussian noise, which needs δ > 0, is mostly found in seconds)" : "";
  show(find("work"), true);
  find("work-bar").value = progress.share;
  find("work-note").textContent = progress.ending ? "keeping the best so far … Cancel again to end at once." : doing(progress) + slow;
  find("work-stop").onclick = stop;
  if (state.fixed === "1") noise.showWaiting(find("work-note").textContent);
};

// A design that was cancelled can be asked for again.
function cancelled(words) {
  show(find("design-said"), true);
  fill(find("design-said"), `${words} `, el("button", { class: "plain", id: "retry", onclick: changed }, "Retry"));
}

const quiet = (error) => {
  if (error.name !== "AbortError" && !(error instanceof Refused)) throw error;
  return error instanceof Refused;
};

// Both are asked at once, but what is wrong above is said before anything below is shown.
async function update() {
  const mine = turn;
  const asked = question();
  document.body.dataset.busy = "yes";
  let waiting = null;
  const leaking = ask("leak", "/api/leak", asked, (progress, stop) => { waiting?.(progress, stop); }).then(
    (found) => ({ answer: found.answer }),
    (error) => ({ error }),
  );
  try {
    const checked = (await ask("check", "/api/check", asked)).answer;
    if (mine !== turn) return undefined;
    known.showCheck(checked);
    if (!checked.ok) return stuck("The equations come first.");
    names = checked.names;
    noise.showNames(names, changed);
    if (rowUnsaid() || unsaid(names).length) rows.describe(null);
    if (rowUnsaid()) return stuck(rowUnsaid());
    if (unsaid(names).length) return stuck(`Step 2 asks how much one person counts for in ${unsaid(names).slice(0, 3).join(", ")}${unsaid(names).length > 3 ? " and others" : ""}.`);
    await rows.describe(asked);
    if (mine !== turn) return undefined;
    if (rows.warning(names)) return stuck(rows.warning(names));
  } catch (error) {
    if (quiet(error)) stuck(error.message);
    return undefined;
  }
  // the verdict comes first; a design would only slow it down, unless it takes long
  const long = new Promise((go) => { waiting = (progress, stop) => { noise.waitLeak(progress, stop); go(null); }; });
  noise.showFixed(null); // what stands there belongs to the question before
  const first = await Promise.race([leaking, long]);
  if (mine !== turn || first?.error?.name === "AbortError") return undefined; // another question came
  const design = designed(asked);
  const { answer, error } = first ?? (await leaking);
  if (mine !== turn) return undefined;
  if (answer) noise.showLeak(answer);
  else if (quiet(error)) noise.noLeak(error.message);
  return design;
}

function stuck(message) {
  noise.noLeak(message);
  refused("");
  delete document.body.dataset.busy;
}

function refused(message) {
  show(find("design-shown"), false);
  show(find("design-said"), Boolean(message));
  fill(find("design-said"), message);
  show(find("verdict-fixed"), false);
  if (find("error") !== document.activeElement) find("error").value = ""; // no noise is shown
  home.showFiles(null);
}

async function designed(asked) {
  const mine = turn;
  noise.showFixed(null);
  try {
    const { shown, files } = (await ask("design", "/api/design", asked, worker())).answer;
    if (mine !== turn) return;
    noise.showDesign(shown, changed);
    home.showFiles(files);
    if (shown.interrupted) cancelled("The design was cancelled: this is the best noise that was found so far, and publish.py would look for better.");
    delete document.body.dataset.busy;
    show(find("work"), false);
  } catch (error) {
    if (mine !== turn || error.name === "AbortError") return;
    show(find("work"), false);
    delete document.body.dataset.busy;
    if (!quiet(error)) return;
    refused(error.status === 409 ? "" : error.message);
    if (error.status === 409) cancelled("The design was cancelled before any noise was found.");
  }
}

// The error that is wished for gives ε, and ε gives everything else.
async function wish(error) {
  const mine = turn;
  try {
    const now = noise.current()?.error;
    const { epsilon } = (await ask("solve", "/api/solve", { question: { ...question(), epsilon: Number(state.epsilon) > 0 ? sized(state.epsilon) : 1 }, error, now }, worker())).answer;
    if (mine !== turn) return;
    state.epsilon = String(epsilon);
    show(find("work"), false);
    changed();
  } catch (problem) {
    if (mine !== turn || problem.name === "AbortError") return;
    show(find("work"), false);
    delete document.body.dataset.busy;
    if (quiet(problem)) {
      show(find("design-said"), true);
      fill(find("design-said"), problem.message);
    }
  }
}

const soon = later(150, update);

function changed() {
  turn += 1;
  document.body.dataset.busy = "yes";
  noise.outdated();
  show(find("design-said"), false);
  fill(find("design-said"));
  noise.refresh();
  write();
  soon();
}

function setUp() {
  for (const choice of document.querySelectorAll("input[name=hidden]"))
    choice.addEventListener("change", () => { state.hidden = choice.value; changed(); });
  for (const name of ["mu", "counted", "directions"])
    find(name).addEventListener("input", (event) => { state[name] = event.target.value; changed(); });
  find("each").addEventListener("change", () => {
    if (!find("each").checked) state.moves = "";
    noise.showNames(names, changed);
    changed();
  });
  find("epsilon").addEventListener("input", (event) => { state.epsilon = event.target.value; changed(); });
  find("epsilon-slide").addEventListener("input", (event) => { state.epsilon = noise.slid(event.target.value); changed(); });
  find("delta").addEventListener("change", (event) => {
    state.delta = event.target.value;
    if (state.law === "gaussian" && !Number(state.delta)) state.law = "auto";
    changed();
  });
  const wished = later(400, wish);
  // until the answer comes, what is shown is about another error
  const wishing = (error) => { turn += 1; document.body.dataset.busy = "yes"; noise.outdated("error"); wished(error); };
  find("error").addEventListener("input", (event) => wishing(sized(event.target.value)));
  find("error-slide").addEventListener("input", (event) => {
    const error = Number((Number(event.target.dataset.unit || 1) * Math.exp((6 * event.target.value) / 1000 - 3)).toPrecision(3));
    find("error").value = String(error);
    wishing(error);
  });
  find("fix").addEventListener("click", () => {
    state.fixed = state.fixed === "1" ? "" : "1";
    write();
    noise.showFixed(document.body.dataset.busy ? null : noise.current());
  });
  const tabs = VIEWS.map((view) => find(`tab-${view}`));
  tabs.forEach((tab, i) => {
    tab.addEventListener("click", () => {
      if (state.view === tab.dataset.view) return;
      state.view = tab.dataset.view;
      write(true);
      chooseView();
    });
    tab.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      const next = tabs[(i + step + tabs.length) % tabs.length];
      next.focus();
      next.click();
    });
  });
  // the address holds the state, so this link must not change it
  find("skip").addEventListener("click", (event) => { event.preventDefault(); find("content").focus(); });
  home.setUp();
}

function refresh() {
  turn += 1;
  known.refresh();
  noise.refresh();
  chooseView();
}

read();
whenUnreachable((message) => { show(find("banner"), Boolean(message)); find("banner").textContent = message; });
setUp();
applications.setUp();
get("/api/hello").then((hello) => {
  find("version").textContent = `affinedp ${hello.version}`;
  known.setUp(changed, hello.most_bytes);
}, quiet);
refresh();
window.addEventListener("pagehide", leave);
window.addEventListener("hashchange", () => { read(); write(); refresh(); });
