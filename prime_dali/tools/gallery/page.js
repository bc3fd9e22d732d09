"use strict";
const one = (selector, inside = document) => inside.querySelector(selector);
const all = (selector, inside = document) => [...inside.querySelectorAll(selector)];

// Filters: by words of the name, by primitive and by strength. An original is shown beside what is left of its rows.
const form = one("form"), count = one("output"), nothing = one(".nothing");
const cards = one(".cards"), articles = all("article", cards);
const many = (n, word) => `${n} ${word}${n === 1 ? "" : "s"}`;

function filter() {
  const words = one("input", form).value.toLowerCase().split(/\s+/).filter(Boolean);
  const { primitive, strength } = form.elements;
  let photographs = 0, images = 0;
  cards.classList.toggle("filtered", Boolean(primitive.value || strength.value));
  for (const article of articles) {
    const named = words.every((word) => article.dataset.name.toLowerCase().includes(word));
    let left = 0;
    for (const strip of all(".strip", article)) {
      const wanted = !primitive.value || strip.dataset.primitive === primitive.value;
      let inStrip = 0;
      for (const figure of all("figure[data-strength]", strip)) {
        figure.hidden = !wanted || (strength.value && figure.dataset.strength !== strength.value);
        inStrip += !figure.hidden;
      }
      left += inStrip;
    }
    article.hidden = !named || !left;
    photographs += !article.hidden;
    images += article.hidden ? 0 : left;
  }
  count.textContent = `${photographs} of ${many(articles.length, "photograph")}, ${many(images, "augmented image")}`;
  nothing.hidden = photographs > 0;
}
for (const kind of ["input", "change"]) form.addEventListener(kind, filter);
form.addEventListener("submit", (event) => event.preventDefault());
form.addEventListener("reset", () => setTimeout(filter));
one("button", nothing).addEventListener("click", () => form.reset());
filter();

// The enlarged image, with a slider between before and after.
const dialog = one("dialog"), compare = one(".compare"), range = one("input", compare);
let current = null;

function slide(value) {
  range.value = value;
  compare.style.setProperty("--at", `${range.value}%`);
}

function show(figure) {
  current = figure;
  const article = figure.closest("article"), [before, after] = [one("img", article), one("img", figure)];
  one("h2", dialog).textContent = `${article.dataset.name}, ${one("figcaption", figure).textContent}`;
  one(".before", dialog).src = before.src;
  one(".after", dialog).src = after.src;
  compare.style.setProperty("--shape", before.naturalWidth / before.naturalHeight);
  compare.classList.toggle("alone", before === after);
  one(".words", dialog).textContent = figure.dataset.words;
  slide(50);
  if (!dialog.open) dialog.showModal();
  range.focus();
}

function move(by) {
  const shown = all("figure").filter((figure) => figure.offsetParent !== null);
  show(shown[(shown.indexOf(current) + by + shown.length) % shown.length]);
}

const actions = { close: () => dialog.close(), previous: () => move(-1), next: () => move(1) };
const keys = {
  ArrowLeft: actions.previous, ArrowRight: actions.next,
  ArrowUp: () => slide(+range.value + 10), ArrowDown: () => slide(+range.value - 10),
  " ": () => slide(+range.value > 50 ? 0 : 100),
};
one("main").addEventListener("click", (event) => event.target.closest("button") && show(event.target.closest("figure")));
range.addEventListener("input", () => slide(range.value));
dialog.addEventListener("click", (event) => {
  const button = event.target.closest("[data-do]");
  if (button) actions[button.dataset.do]();
  else if (event.target === dialog) dialog.close(); // the backdrop
});
document.addEventListener("keydown", (event) => { // not only of the dialog: the slider of an original has no focus
  const onButton = event.target.matches("button") && event.key === " ";
  if (!dialog.open || !(event.key in keys) || onButton) return;
  event.preventDefault();
  keys[event.key]();
});
dialog.addEventListener("close", () => one("button", current).focus());
