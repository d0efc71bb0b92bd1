// Slides: keys move from one to the next, what is too high becomes smaller, and the address says which one is shown.
(() => {
  "use strict";
  const root = document.documentElement, slides = [...document.querySelectorAll(".slide")], system = matchMedia("(prefers-color-scheme: dark)");
  let here = 0;

  // Light or dark as the book has it: its choice is kept under this name, and followed.
  function show(mode) {
    root.dataset.theme = document.body.dataset.theme = ["light", "dark"].includes(mode) ? mode : system.matches ? "dark" : "light";
  }
  const kept = () => { try { return localStorage.getItem("mode"); } catch { return null; } };
  show(kept());

  // A picture is made lower first, then the whole slide smaller; what is unfolded may scroll before it gets too small.
  function fit(slide, least = 0.5) {
    const inside = slide.querySelector(".fit"), high = () => slide.scrollHeight > slide.clientHeight + 1
      || [...inside.querySelectorAll("pre")].some(text => text.scrollWidth > text.clientWidth + 1);
    slide.style.removeProperty("--tall");
    inside.style.zoom = "";
    for (let tall = 62; tall >= 44 && high() && slide.querySelector("svg"); tall -= 2) slide.style.setProperty("--tall", tall);
    for (let zoom = 0.95; zoom >= least && high(); zoom -= 0.05) inside.style.zoom = zoom;
  }
  const fitAll = () => slides.forEach(slide => fit(slide));

  function go(number) {
    here = Math.max(0, Math.min(slides.length - 1, number));
    slides[here].scrollIntoView({behavior: "instant"});
    slides[here].focus({preventScroll: true});
    history.replaceState(null, "", "#" + (here + 1));
  }

  // The next fold of the slide opens; after the last one all of them close.
  function unfold() {
    const asks = slides[here].querySelector(".rlx-guess :is(input, button)");
    if (asks) return asks.focus();                           // what a picture shows is said after the guess
    const folds = [...slides[here].querySelectorAll("details")], next = folds[folds.findLastIndex(one => one.open) + 1];
    next ? next.open = true : folds.forEach(one => { one.open = false; });
  }

  document.addEventListener("keydown", event => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const inControl = event.target.matches("input, select"), onButton = event.target.matches("button, summary");
    const move = {PageDown: 1, PageUp: -1, ...inControl ? {} : {ArrowRight: 1, ArrowLeft: -1, ...onButton ? {} : {" ": 1}}}[event.key];
    if (move) go(here + move);
    else if (event.key === "Home" && !inControl) go(0);
    else if (event.key === "End" && !inControl) go(slides.length - 1);
    else if (event.key === "Escape") go(here);
    else if (event.key === "Enter" && !inControl && !onButton) unfold();
    else if (/^[1-9]$/.test(event.key) && !inControl) { const answer = slides[here].querySelectorAll(".quiz details")[event.key - 1]; if (answer) answer.open = true; }
    else if (event.key === "f" && !inControl) document.fullscreenElement ? document.exitFullscreen() : root.requestFullscreen();
    else if (event.key === "d" && !inControl) show(root.dataset.theme === "dark" ? "light" : "dark");
    else return;
    event.preventDefault();
  });
  const watch = new IntersectionObserver(seen => seen.filter(one => one.isIntersecting).forEach(one => { here = slides.indexOf(one.target); }), {threshold: 0.6});
  slides.forEach(slide => watch.observe(slide));
  document.querySelectorAll(".quiz").forEach((quiz, number) => quiz.querySelectorAll("details").forEach(answer => { answer.name = "quiz-" + number; }));
  addEventListener("load", () => document.fonts.ready.then(() => {
    fitAll();
    requestAnimationFrame(() => go(Number(location.hash.slice(1) || 1) - 1));  // when the slides have their places
  }));
  addEventListener("resize", fitAll);
  for (const done of ["click", "keydown"]) document.addEventListener(done, () => {   // after a guess a line more stands there
    if (slides[here].querySelector(".rlx-told:not(:empty)")) setTimeout(() => fit(slides[here]));
  });
  document.addEventListener("toggle", event => fit(event.target.closest(".slide"), 0.75), true);
})();
