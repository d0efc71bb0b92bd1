// The only script of a page: colors, search, contents, formulas, quizzes, code. It does what the theme's five scripts do
// that this book uses, in a fifth of their size.
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
      const tex = formula.dataset.tex, mark = formula.tagName === "DIV" ? "$$" : "$";
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
  const names = {"katex-scroll": "Wide formula", "text_html": "Wide output", PRE: "Code or output", "pst-scrollable-table-container": "Wide table"};
  const reachable = new ResizeObserver(entries => {
    for (const {target: box} of entries) {
      const name = Object.keys(names).find(key => box.classList.contains(key) || box.tagName === key), wide = box.scrollWidth > box.clientWidth + 1;
      if (wide) box.tabIndex = 0; else box.removeAttribute("tabindex");
      if (!name) continue;  // a picture has a name already
      if (wide) {
        box.setAttribute("role", "group");
        box.setAttribute("aria-label", names[name]);
      } else {
        ["role", "aria-label"].forEach(attribute => box.removeAttribute(attribute));
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
        if (section === here) link.setAttribute("aria-current", "true"); else link.removeAttribute("aria-current");
      }
      const panel = document.querySelector(".bd-sidebar-secondary"), link = links.get(here);
      if (!link || !panel) return;
      const box = link.getBoundingClientRect(), around = panel.getBoundingClientRect();
      if (box.top < around.top + 60 || box.bottom > around.bottom - 60) panel.scrollTop += box.top - around.top - around.height / 3;
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

  // Light, dark, or as the system has it: the button goes through the three, and the choice is kept.
  const root = document.documentElement, system = matchMedia("(prefers-color-scheme: dark)");
  const keep = (name, value) => { try { localStorage.setItem(name, value); } catch { /* a reader may forbid storage */ } };
  // A title is a name; beside a label of the same words it would be read a second time.
  function rename(button, name) {
    button.title = name;
    button.removeAttribute("aria-label");
  }
  function show(mode) {
    root.dataset.mode = mode;
    root.dataset.theme = mode === "auto" ? (system.matches ? "dark" : "light") : mode;
    keep("mode", mode);
    keep("theme", root.dataset.theme);
    for (const button of document.querySelectorAll(".theme-switch-button"))
      rename(button, {auto: "Colors: as the system", light: "Colors: light", dark: "Colors: dark"}[mode]);
  }
  system.addEventListener("change", () => { if (root.dataset.mode === "auto") show("auto"); });
  function switchTheme() {
    const modes = system.matches ? ["auto", "light", "dark"] : ["auto", "dark", "light"];
    show(modes[(modes.indexOf(root.dataset.mode) + 1) % 3]);
  }

  // The search opens over the page; its script, with the text of the whole book, is loaded with the first use.
  let searching = null;
  const searchScript = () => searching ??= new Promise((done, failed) => {
    const script = document.createElement("script");
    script.src = (root.dataset.content_root ?? "./") + "_static/search.js";
    script.onload = done;
    script.onerror = failed;
    document.head.append(script);
  });
  function searchOf(form, place) {
    searchScript().then(() => bookSearch.attach(form, place), () => { place.textContent = "The search could not be loaded."; });
  }
  let dialog = null;
  function openSearch() {
    const page = document.querySelector(".book-search input");
    if (page) return page.focus();
    if (!dialog) {
      dialog = document.createElement("dialog");
      dialog.className = "book-dialog";
      dialog.setAttribute("aria-label", "Search this book");
      dialog.innerHTML = `<form class="book-search" role="search" method="get" action="${root.dataset.content_root ?? "./"}search.html">
        <input type="search" class="form-control" name="q" aria-label="Words, symbols or names" placeholder="Words, symbols or names"
          autocomplete="off" autocapitalize="off" spellcheck="false"><button type="button" class="btn">Close</button>
        <div class="book-results"></div></form>`;
      document.body.append(dialog);
      const form = dialog.querySelector("form");
      form.querySelector("button").addEventListener("click", () => dialog.close());
      dialog.addEventListener("click", event => { if (event.target === dialog || event.target.closest("a")) dialog.close(); });
      searchOf(form, form.querySelector(".book-results"));
    }
    if (!dialog.open) dialog.showModal();
    dialog.querySelector("input").select();
  }
  document.addEventListener("keydown", event => {
    if ((event.ctrlKey || event.metaKey) && !event.altKey && !event.shiftKey && event.key.toLowerCase() === "k") {
      event.preventDefault();
      openSearch();
    }
  });

  // The contents at the side: on narrow screens they slide in and out, and they stay where the reader scrolled them.
  function sides() {
    for (const [name, toggle] of [["primary", ".primary-toggle"], ["secondary", ".secondary-toggle"]]) {
      const box = document.getElementById(`pst-${name}-sidebar-checkbox`), side = document.querySelector(`.bd-sidebar-${name}`);
      const button = document.querySelector(toggle);
      if (!box || !side || !button) continue;
      rename(button, name === "primary" ? "Contents of the book" : "Contents of this page");
      button.addEventListener("click", event => {
        event.preventDefault();
        box.checked = !box.checked;
        if (box.checked) setTimeout(() => side.querySelector("a, button")?.focus(), 100);
      });
      side.addEventListener("keydown", event => {
        if (event.key === "Escape") { box.checked = false; button.focus(); }
      });
    }
    const side = document.querySelector(".bd-sidebar-primary"), here = side?.querySelector(".bd-docs-nav .active a");
    if (!side) return;
    try {
      const kept = parseInt(sessionStorage.getItem("sidebar-scroll-top"), 10);
      if (!isNaN(kept)) side.scrollTop = kept;
      addEventListener("pagehide", () => sessionStorage.setItem("sidebar-scroll-top", side.scrollTop));
    } catch { /* a reader may forbid storage */ }
    const top = here ? here.getBoundingClientRect().top - side.getBoundingClientRect().top : 0;
    if (here && (top < 0 || top > side.clientHeight - 40)) side.scrollTop += top - side.clientHeight / 4;
    const scrolled = () => document.body.classList.toggle("scrolled", scrollY > 8);
    addEventListener("scroll", scrolled, {passive: true});
    scrolled();
  }

  // Code can be copied with the mouse. The button is no stop for the Tab key: there are forty on a page, and code can be selected.
  function copyButtons() {
    for (const code of document.querySelectorAll("div.highlight > pre")) {
      if (code.closest(".cell_output")) continue;
      const button = document.createElement("button");
      button.type = "button";
      button.className = "book-copy";
      button.textContent = "Copy";
      button.tabIndex = -1;
      code.parentElement.append(button);
    }
    document.addEventListener("click", async event => {
      const button = event.target.closest?.(".book-copy");
      if (!button) return;
      const copy = button.parentElement.querySelector("pre").cloneNode(true);
      copy.querySelectorAll(".linenos, .gp, .go").forEach(part => part.remove());
      await navigator.clipboard.writeText(copy.textContent.trimEnd()).then(
        () => { button.textContent = "Copied"; }, () => { button.textContent = "Not allowed"; });
      setTimeout(() => { button.textContent = "Copy"; }, 1500);
    });
  }

  // A link into something folded opens it; paper has everything open.
  function openTarget() {
    let target = null;
    try { target = document.getElementById(decodeURIComponent(location.hash.slice(1))); } catch { /* no address of ours */ }
    for (let box = target; box; box = box.parentElement) if (box.tagName === "DETAILS") box.open = true;
    target?.scrollIntoView();
  }
  addEventListener("hashchange", openTarget);
  addEventListener("beforeprint", () => document.querySelectorAll("details.admonition:not(.hide)").forEach(box => { box.open = true; }));

  addEventListener("DOMContentLoaded", () => {
    show(["light", "dark"].includes(root.dataset.mode) ? root.dataset.mode : "auto");
    document.querySelectorAll(".theme-switch-button").forEach(button => button.addEventListener("click", switchTheme));
    document.querySelectorAll(".search-button__button").forEach(button => button.addEventListener("click", openSearch));
    document.querySelectorAll(".btn-fullscreen-button").forEach(button => button.addEventListener("click", () =>
      document.fullscreenElement ? document.exitFullscreen() : root.requestFullscreen()));
    const page = document.querySelector("main .book-search");
    if (page) {
      const field = page.querySelector("input");
      field.value = new URLSearchParams(location.search).get("q") ?? "";
      searchOf(page, page.querySelector(".book-results"));
      field.focus();
    }
    sides();
    copyButtons();
    followReader();
    if (location.hash) openTarget();
    // One open answer per quiz: browsers close the others of the same name.
    document.querySelectorAll(".quiz").forEach((quiz, number) =>
      quiz.querySelectorAll("details.quiz-right, details.quiz-wrong").forEach(answer => { answer.name = "quiz-" + number; }));
    // The eye sees what a folded cell hides; give the marks of the contents and of icons to nobody else.
    document.querySelectorAll("i[class*='fa-'], span[class*='fa-']").forEach(icon => icon.setAttribute("aria-hidden", "true"));
  });
  addEventListener("load", () =>
    document.querySelectorAll(".katex-scroll, .rlx-picture, .cell_output .text_html, .pst-scrollable-table-container, article pre").forEach(box => reachable.observe(box)));
})();
