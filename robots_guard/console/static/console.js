// The overview, kept up to date. Without this script the page is whole, and as old as it says.
"use strict";

const EVERY = 5000; // milliseconds

function follow(live) {
  const box = live.querySelector("input");
  const figures = document.getElementById("figures");
  const made = document.getElementById("made");

  // A reader who is in the figures, or has something open there, is not disturbed.
  const busy = () => figures.contains(document.activeElement) || figures.querySelector("details[open]");

  async function look() {
    if (!box.checked || document.hidden || busy()) return;
    try {
      const answer = await fetch(live.dataset.live, { credentials: "same-origin" });
      if (!answer.ok) throw new Error(answer.status);
      const news = await answer.json();
      // Made by the server from the page's own template, in which everything is escaped.
      if (!busy()) figures.innerHTML = news.figures;
      made.textContent = news.made;
      live.classList.remove("lost");
    } catch {
      live.classList.add("lost");
    }
  }

  live.hidden = false;
  setInterval(look, EVERY);
}

document.querySelectorAll("[data-live]").forEach(follow);

// What was left empty in a form is no part of an address.
document.querySelectorAll("form.filter").forEach((form) =>
  form.addEventListener("formdata", (event) => {
    for (const [name, value] of [...event.formData]) if (!value) event.formData.delete(name);
  })
);
