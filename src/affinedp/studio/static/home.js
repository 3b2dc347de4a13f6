// Step 4: files that do what the page shows; publishing only with a ledger, after a preview.
import { ask, save } from "./api.js";
import { el, fill, find, number, upward, working } from "./dom.js";
import * as functions from "./functions.js";
import { fileName } from "./known.js";
import { question, state } from "./state.js";

const KINDS = { "publish.py": "text/x-python", "problem.toml": "application/toml", "mechanism.json": "application/json", "report.html": "text/html" };
let files = null;

export function showFiles(given) {
  // a preview is about the noise that was shown with it
  if (files && given?.["mechanism.json"] !== files["mechanism.json"]) fill(find("preview-said"));
  files = given;
  for (const button of document.querySelectorAll("[data-file]")) button.disabled = !files?.[button.dataset.file];
  find("script").textContent = files?.["publish.py"] ?? "";
  fill(find("files-said"));
}

export function setUp() {
  for (const button of document.querySelectorAll("[data-file]"))
    button.addEventListener("click", () => {
      const name = button.dataset.file;
      save(name, files[name], KINDS[name]);
      fill(find("files-said"), `${name} is in your downloads.`);
    });
  find("preview").addEventListener("click", preview);
  functions.setUp();
}

async function preview() {
  const place = find("preview-said");
  if (!state.file) return fill(place, el("p", { class: "warn" }, "Choose the file with the numbers first, in step 1."));
  if (!files) return fill(place, el("p", { class: "warn" }, "Finish the steps above first: there is no noise to publish with."));
  if (!find("ledger").value.trim()) return fill(place, el("p", { class: "warn" }, "Say which ledger keeps the budget."));
  const rows = document.querySelector("input[name=rows]:checked").value;
  try {
    const wanted = { question: question(), file: state.file, ledger: find("ledger").value.trim(), rows, label: "studio" };
    const told = (await ask("preview", "/api/release/preview", wanted, (progress, stop) => fill(place, working(progress, stop)))).answer;
    const lines = [
      `${number(told.rows, 9)} row${told.rows === 1 ? "" : "s"} of ${fileName()} would be published, and ${number(told.charges, 9)} release${told.charges === 1 ? "" : "s"} of ε = ${upward(told.epsilon)} charged.`,
      `The ledger “${told.ledger}” protects ${told.protects || "one secret"}: ε = ${upward(told.spent)} of ${number(told.cap)} is spent, ${number(told.remaining)} is left.`,
    ];
    fill(place, lines.map((one) => el("p", {}, one)), told.fits
      ? el("p", { class: "buttons" }, el("button", { class: "danger", id: "publish", onclick: (event) => publish(told.ticket, event.target) }, "Spend it and publish"), " This cannot be undone.")
      : el("p", { class: "warn" }, "The budget does not allow it, or the ledger is about another secret. Nothing was charged."));
  } catch (error) {
    said(place, error, (message) => (error.status === 409 ? "The preview was cancelled. Nothing was charged." : `${message}. Nothing was charged.`));
  }
}

// With 409 a job was stopped, with 500 it failed, and with 0 nobody answers.
function said(place, error, unsure) {
  if (error.name === "AbortError") return;
  fill(place, el("p", { class: "warn", role: "alert" }, error.status === 422 || error.status === 429 ? error.message : unsure(error.message)));
}

async function publish(ticket, button) {
  const place = find("preview-said");
  button.disabled = true;
  try {
    // no Cancel: what is charged is charged, and a job of its own name is not replaced
    const told = (await ask(`publish-${ticket}`, "/api/release/publish", { ticket }, (progress) => fill(place, working(progress)))).answer;
    save("published.csv", told.csv, "text/csv");
    const left = told.spent === null ? "" : ` ε = ${upward(told.spent)} is spent now, ${number(told.remaining)} is left.`;
    functions.offer(ticket, told.names, fileName());
    fill(place, el("p", { class: "said" }, `Published: published.csv is in your downloads.${left} `, el("button", { class: "link", id: "to-functions", onclick: functions.open }, "Shares and rates of it")), ...told.warnings.map((words) => el("p", { class: "warn" }, words)));
  } catch (error) {
    said(place, error, (message) => `${message}. It may have been charged and not published: “affinedp ledger show” tells.`);
  }
}
