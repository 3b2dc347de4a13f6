// Questions to the Python side: small, with the token of this run, and with a way to stop them.
import { address } from "./state.js";

const tab = Array.from(crypto.getRandomValues(new Uint8Array(9)), (one) => one.toString(36)).join("");

export class Refused extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

// Called with a sentence when nothing can be asked any more, and with nothing when it can.
let unreachable = () => {};
export function whenUnreachable(action) {
  unreachable = action;
}

async function send(method, path, { body, headers = {}, signal } = {}) {
  let answer;
  try {
    answer = await fetch(path, {
      method,
      body,
      signal,
      cache: "no-store",
      headers: { "x-studio-token": address.token, ...headers },
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    unreachable("The studio was stopped. Start it again with “affinedp studio” and open its new link; what you wrote stays in this address.");
    throw new Refused("the studio does not answer", 0);
  }
  let content = {};
  try {
    content = await answer.json();
  } catch (error) {
    if (error.name === "AbortError") throw error; // another question took its place
    content = { message: "the studio sent no answer" };
  }
  if (answer.status === 401) unreachable("This link belongs to another run of the studio. Take the link that the terminal shows.");
  else unreachable("");
  if (!answer.ok) throw new Refused(content.message || "refused", answer.status);
  return { status: answer.status, content };
}

const jobs = new Map();

// Ask one thing of a kind at a time: a new question takes the place of the old one.
export async function ask(kind, path, question, progress = () => {}, method = "POST") {
  const name = `${kind}-${tab}`;
  jobs.get(kind)?.abort();
  const control = new AbortController();
  jobs.set(kind, control);
  const headers = { "x-studio-job": name };
  let options = { headers, signal: control.signal };
  if (method === "POST") {
    headers["content-type"] = "application/json";
    options.body = JSON.stringify(question);
  }
  try {
    let found = await send(method, path, options);
    while (found.status === 202) {
      progress(found.content.progress, () => cancel(kind));
      found = await send("GET", `/api/jobs/${name}`, { signal: control.signal });
    }
    return found.content;
  } finally {
    if (jobs.get(kind) === control) jobs.delete(kind);
  }
}

// Nobody waits any more: end what still runs, except what was charged.
export function leave() {
  for (const kind of jobs.keys())
    if (!kind.startsWith("publish")) fetch(`/api/jobs/${kind}-${tab}`, { method: "DELETE", keepalive: true, headers: { "x-studio-token": address.token } }).catch(() => {});
}

export async function cancel(kind) {
  await send("DELETE", `/api/jobs/${kind}-${tab}`).catch(() => {});
}

export const get = async (path) => (await send("GET", path)).content;

export const upload = async (file) =>
  (await send("POST", `/api/files?name=${encodeURIComponent(file.name)}`, { body: file, headers: { "content-type": "application/octet-stream" } })).content;

export const forget = (file) => send("DELETE", `/api/files/${file}`).catch(() => {});

export function save(name, text, kind) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: kind }));
  link.download = name;
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}
