// The live formula: a symbol lights up wherever it stands: in the formula, in the nearest explorer, and by its names in the nearest code;
// and that explorer's terms are written into the formula. What is marked comes from _ext/live_formula.py.
(() => {
  "use strict";
  const every = (selector, within = document) => [...within.querySelectorAll(selector)];
  const boxes = every(".live-names");
  const span = (inside, name, value) => {
    const element = document.createElement("span");
    element.append(inside);
    element.setAttribute(name, value);
    return element;
  };
  let pinned = "", lit = "";

  function light(key) {
    if (key === lit) return;
    lit = key;
    every(".lit").forEach(element => element.classList.remove("lit"));
    if (key) every(`[data-live="${key}"]`).forEach(element => element.classList.add("lit"));
    for (const box of boxes) {
      const button = key && box.querySelector(`button[data-live="${key}"]`), value = box.figure?.getAttribute("data-term-" + key);
      box.querySelector("output").textContent = button ? button.lastChild.data + (value ? ", now " + value : "") : "";
    }
  }

  // The line of numbers goes into its explorer, and follows it.
  function numbers(figure, line) {
    const slots = every("[data-term]", line), letters = slots.map(slot => slot.innerHTML), button = document.createElement("button");
    let on = false;
    const write = () => slots.forEach((slot, index) => {
      if (on) slot.textContent = figure.getAttribute("data-term-" + slot.dataset.term);
      else slot.innerHTML = letters[index];
    });
    const change = () => {
      on = !on;
      button.textContent = on ? "letters" : "numbers";
      write();
    };
    button.type = "button";
    line.firstChild.removeAttribute("aria-hidden");
    button.addEventListener("click", change);
    line.append(button);
    figure.querySelector(".rlx-line").before(line);
    line.hidden = false;
    new MutationObserver(() => { if (on) write(); }).observe(figure, {attributes: true});
    change();
  }

  // A symbol's names in the nearest code that shows. What stands in no element of its own is no string, comment or number.
  function names(nearest, {code, live}) {
    const any = new RegExp(`\\b(${code.replaceAll(" ", "|")})\\b`);
    const texts = cell => [...cell.childNodes].filter(node => node.nodeType === Node.TEXT_NODE && any.test(node.data));
    const cell = nearest(every("article .highlight pre").filter(one => one.checkVisibility() && texts(one).length));
    for (const text of cell ? texts(cell) : [])
      text.replaceWith(...text.data.split(any).map((part, index) => index % 2 ? span(part, "data-live", live) : part));
  }

  addEventListener("DOMContentLoaded", () => boxes.forEach(box => {
    const buttons = every("button", box), line = box.querySelector(".live-line");
    const nearest = those => those.find(one => box.compareDocumentPosition(one) & Node.DOCUMENT_POSITION_FOLLOWING) ?? those.at(-1);
    const shows = figure => buttons.some(({dataset: {live}}) => figure.hasAttribute("data-term-" + live) || figure.querySelector(`[data-live="${live}"]`));
    box.figure = nearest(every("rlx-figure").filter(shows));
    if (line && box.figure) numbers(box.figure, line);
    for (const button of buttons) {
      const sign = box.previousElementSibling.querySelector(`[data-live="${button.dataset.live}"]`).cloneNode(true);
      button.prepend(span(span(sign, "class", "katex"), "aria-hidden", "true"), " ");
      if (button.dataset.code) names(nearest, button.dataset);
    }
  }));
  const keyOf = target => target.closest?.("[data-live]")?.dataset.live ?? pinned;
  for (const [name, follow] of [
    ["pointerover", event => light(keyOf(event.target))],
    ["focusin", event => light(keyOf(event.target))],
    ["click", event => { pinned = ""; light(pinned = keyOf(event.target)); }],
    ["keydown", event => { if (event.key === "Escape") light(pinned = ""); }],
  ]) document.addEventListener(name, follow);
})();
