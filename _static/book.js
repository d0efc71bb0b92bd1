// The page's own small script: formulas, quizzes, the menu of the top bar, the mark in the page's contents.
(() => {
  "use strict";

  // Copying a formula gives its TeX.
  document.addEventListener("copy", event => {
    const selection = getSelection();
    if (!selection.rangeCount || selection.isCollapsed) return;
    const formulaOf = node => (node.nodeType === Node.ELEMENT_NODE ? node : node.parentElement)?.closest(".math");
    const range = selection.getRangeAt(0).cloneRange();
    const first = formulaOf(range.startContainer), last = formulaOf(range.endContainer);
    if (first) range.setStartBefore(first);                    // whole formulas only
    if (last) range.setEndAfter(last);
    const copy = range.cloneContents(), formulas = copy.querySelectorAll(".math");
    if (!formulas.length) return;
    for (const formula of formulas) {
      const tex = formula.querySelector("annotation")?.textContent, mark = formula.tagName === "DIV" ? "$$" : "$";
      if (tex) formula.textContent = mark + tex + mark;
    }
    const box = document.createElement("div");
    box.style.cssText = "position:fixed;left:-9999px;white-space:pre-wrap";
    box.append(copy);
    document.body.append(box);
    event.clipboardData.setData("text/plain", box.innerText);
    event.preventDefault();
    box.remove();
  });

  // What is wider than its box can be scrolled with the keyboard.
  const names = {"katex-scroll": "Wide formula", "text_html": "Wide output"};
  const reachable = new ResizeObserver(entries => {
    for (const {target: box} of entries) {
      const name = Object.keys(names).find(key => box.classList.contains(key));
      if (box.scrollWidth > box.clientWidth + 1) {
        box.tabIndex = 0;
        box.setAttribute("role", "group");
        box.setAttribute("aria-label", names[name]);
      } else {
        ["tabindex", "role", "aria-label"].forEach(attribute => box.removeAttribute(attribute));
      }
    }
  });

  // The mark in the page's contents follows the reader.
  function followReader() {
    const links = new Map();
    for (const link of document.querySelectorAll(".bd-toc-nav a[href^='#']")) {
      const section = document.getElementById(decodeURIComponent(link.hash.slice(1)));
      if (section) links.set(section, link);
    }
    if (!links.size) return;
    let waiting = false;
    const mark = () => {
      waiting = false;
      let here = null;
      for (const section of links.keys()) if (section.getBoundingClientRect().top < innerHeight * 0.3) here = section;
      if (scrollY + innerHeight >= document.documentElement.scrollHeight - 2) here = [...links.keys()].pop();
      for (const [section, link] of links) {
        link.classList.toggle("active", section === here);
        link.parentElement.classList.toggle("active", section === here);
      }
    };
    addEventListener("scroll", () => { if (!waiting) { waiting = true; requestAnimationFrame(mark); } }, {passive: true});
    mark();
  }

  // A menu of the top bar opens and closes; the theme leaves this to a script of 80 KB.
  const menuButton = '[data-bs-toggle="dropdown"]';
  document.addEventListener("click", event => {
    const clicked = event.target.closest?.(menuButton);
    for (const button of document.querySelectorAll(menuButton)) {
      const open = button === clicked && !button.classList.contains("show");
      const menu = button.parentElement.querySelector(".dropdown-menu");
      button.classList.toggle("show", open);
      button.setAttribute("aria-expanded", open);
      menu.classList.toggle("show", open);
      menu.style.cssText = open ? "left:0;transform:none!important" : "";  // the theme leaves it beside its button, on phones outside
    }
  });
  document.addEventListener("keydown", event => {
    const open = event.key === "Escape" && document.querySelector(menuButton + ".show");
    if (open) { open.click(); open.focus(); }
  });

  addEventListener("DOMContentLoaded", () => {
    followReader();
    // One open answer per quiz: browsers close the others of the same name.
    document.querySelectorAll(".quiz").forEach((quiz, number) =>
      quiz.querySelectorAll("details.quiz-right, details.quiz-wrong").forEach(answer => { answer.name = "quiz-" + number; }));
    // The eye sees what a folded cell hides; give the marks of the contents and of icons to nobody else.
    document.querySelectorAll("i[class*='fa-'], span[class*='fa-']").forEach(icon => icon.setAttribute("aria-hidden", "true"));
  });
  addEventListener("load", () =>
    document.querySelectorAll(".katex-scroll, .cell_output .text_html").forEach(box => reachable.observe(box)));
})();
