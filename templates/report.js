"use strict";
// Everything here only adds comfort: the page is complete without it.
for (const element of document.querySelectorAll(".needs-script")) element.hidden = false;

const search = document.getElementById("search");
const matches = document.getElementById("matches");
if (search) {
  const findings = [...document.querySelectorAll(".finding")];
  search.addEventListener("input", () => {
    const wanted = search.value.trim().toLowerCase();
    let count = 0;
    for (const finding of findings) {
      const hit = finding.textContent.toLowerCase().includes(wanted);
      finding.classList.toggle("unmatched", !hit);
      if (hit) count += 1;
    }
    matches.textContent = wanted ? `${count} of ${findings.length}` : "";
  });
}
for (const form of document.querySelectorAll("form")) {
  form.addEventListener("submit", (event) => event.preventDefault());
}

for (const block of document.querySelectorAll(".todo pre")) {
  if (!navigator.clipboard) break;
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = "Copy";
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(block.textContent);
    button.textContent = "Copied";
  });
  block.before(button);
}
