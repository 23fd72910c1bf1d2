// Keeps the overview up to date. Without this script the page is complete, and shows when it was generated.
"use strict";

const INTERVAL = 5000; // milliseconds

function keepUpToDate(live) {
  const box = live.querySelector("input");
  const figures = document.getElementById("figures");
  const made = document.getElementById("made");

  // Do not replace the figures while the focus is in them, or something in them is open.
  const busy = () => figures.contains(document.activeElement) || figures.querySelector("details[open]");

  async function update() {
    if (!box.checked || document.hidden || busy()) return;
    try {
      const response = await fetch(live.dataset.live, { credentials: "same-origin" });
      if (!response.ok) throw new Error(response.status);
      const data = await response.json();
      // The server renders this from the page's own template, which escapes everything.
      if (!busy()) figures.innerHTML = data.figures;
      made.textContent = data.made;
      live.classList.remove("lost");
    } catch {
      live.classList.add("lost");
    }
  }

  live.hidden = false;
  setInterval(update, INTERVAL);
}

document.querySelectorAll("[data-live]").forEach(keepUpToDate);

// Leave empty fields of a form out of the address, unless an empty value has a meaning.
document.querySelectorAll("form.filter").forEach((form) =>
  form.addEventListener("formdata", (event) => {
    for (const [name, value] of [...event.formData]) {
      if (!value && !("keep" in form.elements[name].dataset)) event.formData.delete(name);
    }
  })
);
