// What is visible stands in the address, after the #, which browsers do not send anywhere.
export const DEFAULTS = {
  view: "numbers",
  equations: "a + b = c",
  hidden: "definition4",
  mu: "1",
  moves: "",
  counted: "",
  directions: "",
  epsilon: "1",
  delta: "0",
  law: "auto",
  fixed: "",
  file: "",
  also: "",
  labels: "",
  ask: "",
  row: "",
  A: "1 0.1; 0 1",
  C: "1 0",
  horizon: "100",
  reach: "1 0.1",
  neighbours: "time-local",
  c_epsilon: "1",
  c_delta: "0.01",
  links: "1 2\n2 3\n3 4\n4 5\n5 6\n6 7\n7 8\n8 9\n9 10\n10 1",
  rounds: "60",
  n_mu: "1",
  spread: "10",
  n_law: "auto",
  n_epsilon: "1",
  n_delta: "0.01",
};

export const address = { token: "" };
export const state = { ...DEFAULTS };

export function read() {
  const given = new URLSearchParams(location.hash.slice(1));
  address.token = given.get("token") || address.token;
  for (const name of Object.keys(DEFAULTS)) state[name] = given.get(name) ?? DEFAULTS[name];
}

// Back returns to what was looked at before; what is typed makes no steps of its own.
export function write(step = false) {
  const parts = new URLSearchParams();
  if (address.token) parts.set("token", address.token);
  for (const [name, value] of Object.entries(state)) if (value !== DEFAULTS[name]) parts.set(name, value);
  history[step ? "pushState" : "replaceState"](null, "", `#${parts}`);
}

// μ of single numbers, as name:size pairs; names may be anything, also those of an object's own methods
export const moves = () => Object.setPrototypeOf(Object.fromEntries(list(state.moves).filter((one) => Array.isArray(one) && typeof one[0] === "string" && (typeof one[1] === "string" || Number.isFinite(one[1])))), null);

export function setMoves(pairs) {
  const given = Object.entries(pairs);
  state.moves = given.length ? JSON.stringify(given) : "";
}

// what a hand-made link holds may be anything
function list(text) {
  try {
    const found = JSON.parse(text || "[]");
    return Array.isArray(found) ? found : [];
  } catch {
    return [];
  }
}

const texts = (text) => list(text).filter((one) => typeof one === "string");
export const also = () => texts(state.also);
export const labels = () => texts(state.labels);

// What a row of the file is, where nobody said that it is about many people.
export const rowUnsaid = () => {
  if (!state.ask || state.row === "group") return "";
  return state.row === "person" ? "A row is one person: count the people first (step 1 says how)." : "Step 1 asks whether a row of the file is one person.";
};

// Columns of a file of which nobody said yet how much one person counts for in them.
export const unsaid = (names) => (state.ask && state.hidden !== "directions" ? names.filter((name) => !(name in moves())) : []);

// What is no number is sent as it is, and refused: another number would be a promise that nobody asked for.
export const sized = (text) => (text.trim() === "" || !Number.isFinite(Number(text)) ? text : Number(text));

export function question() {
  return {
    equations: state.equations,
    also: also(),
    labels: labels(),
    hidden: state.hidden,
    mu: sized(state.mu),
    moves: moves(),
    counted: state.counted.trim() === "" ? null : sized(state.counted),
    directions: state.directions,
    epsilon: sized(state.epsilon),
    delta: sized(state.delta),
    law: state.law,
  };
}
