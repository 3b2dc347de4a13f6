// Copy buttons on code, and the list of versions that is served beside the pages.
"use strict";

/** What someone wants to run: without prompts, and without what was printed. */
function code(block) {
  const lines = block.textContent.replace(/\n$/, "").split("\n");
  const typed = lines.filter((line) => /^(>>>|\.\.\.|\$)( |$)/.test(line));
  if (!/^(>>>|\$) /.test(lines[0])) return lines.join("\n");
  return typed.map((line) => line.replace(/^(>>>|\.\.\.|\$) ?/, "")).join("\n");
}

for (const block of document.querySelectorAll("div.highlight > pre")) {
  if (block.closest(".sphx-glr-script-out")) continue; // what was printed
  const button = document.createElement("button");
  button.className = "copy";
  button.type = "button";
  button.textContent = "copy";
  button.setAttribute("aria-label", "Copy this code");
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(code(block) + "\n");
    button.textContent = "copied";
    setTimeout(() => { button.textContent = "copy"; }, 1500);
  });
  block.parentElement.append(button);
}

/** Offer the other versions; the same page of another version may not be there, its start is. */
async function offerVersions(select) {
  const root = new URL(document.documentElement.dataset.content_root, location.href);
  const list = new URL("versions.json", root);
  const versions = await (await fetch(list)).json();
  select.replaceChildren(...versions.map(({ version, name, url }) => {
    const option = new Option(name, new URL(url, list).href);
    option.selected = select.dataset.current.startsWith(version);
    return option;
  }));
  select.addEventListener("change", () => { location.href = select.value; });
}

const select = document.getElementById("version");
if (select) offerVersions(select).catch(() => {}); // files opened from a disk know their own only
