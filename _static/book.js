// The only script of a page beside that of its figures: colors, search, contents, formulas, quizzes, code, and what the reader did.
(() => {
  "use strict";
  const root = document.documentElement, every = (selector, within = document) => [...within.querySelectorAll(selector)];
  const page = location.pathname.split("/").pop() || "index.html", home = root.dataset.content_root ?? "./";

  // What the reader did here is kept on the reader's own machine, in one entry, and goes nowhere. A reader may forbid storage.
  const kept = {read: [], quiz: {}, guess: {}, place: null};
  try { Object.assign(kept, JSON.parse(localStorage.getItem("book"))); } catch { /* nothing is kept */ }
  const keep = (name, value) => { try { localStorage.setItem(name, value); } catch { /* nothing is kept */ } };
  const remember = () => keep("book", JSON.stringify(kept));
  const forget = () => { try { localStorage.removeItem("book"); } catch { /* nothing was kept */ } location.reload(); };

  // Copying a formula gives its TeX.
  document.addEventListener("copy", event => {
    const selection = getSelection();
    if (!selection.rangeCount || selection.isCollapsed) return;
    const formulaOf = node => (node.nodeType === Node.ELEMENT_NODE ? node : node.parentElement)?.closest(".math");
    const range = selection.getRangeAt(0).cloneRange();
    const first = formulaOf(range.startContainer), last = formulaOf(range.endContainer);
    if (first) range.setStartBefore(first);                    // whole formulas only
    if (last) range.setEndAfter(last);
    const copy = range.cloneContents(), formulas = every(".math", copy);
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
  const names = {"katex-scroll": "Wide formula", "text_html": "Wide output", PRE: "Code or output", "table-wrapper": "Wide table"};
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

  // The mark in the page's contents follows the reader; the place is kept.
  function followReader() {
    const links = new Map();
    for (const link of every(".toc-tree a[href^='#']")) {
      const section = document.getElementById(decodeURIComponent(link.hash.slice(1)));
      if (section) links.set(section, link);
    }
    const panel = document.querySelector(".toc-scroll");
    let waiting = false;
    const mark = () => {
      waiting = false;
      let here = null;
      for (const section of links.keys()) if (section.getBoundingClientRect().top < innerHeight * 0.3) here = section;
      if (scrollY + innerHeight >= root.scrollHeight - 2) here = [...links.keys()].pop();
      for (const [section, link] of links)
        if (section === here) link.setAttribute("aria-current", "true"); else link.removeAttribute("aria-current");
      const link = links.get(here);
      if (!link) return;
      if (document.querySelector(".ways-on") && scrollY) {
        kept.place = [page + "#" + here.id, document.querySelector("h1").innerText.replace(/#$/, ""), link.innerText];
        remember();
      }
      const box = link.getBoundingClientRect(), around = panel.getBoundingClientRect();
      if (box.top < around.top + 60 || box.bottom > around.bottom - 60) panel.scrollTop += box.top - around.top - around.height / 3;
    };
    addEventListener("scroll", () => { if (!waiting) { waiting = true; requestAnimationFrame(mark); } }, {passive: true});
    if (links.size) mark();
  }

  // Lessons read to their end get a mark in the contents, on the emblem and on the map; the first page leads back to the place.
  const isRead = link => kept.read.includes(link.dataset.page ?? (link.getAttribute("href") === "#" ? page : link.getAttribute("href").split("/").pop()));
  function markRead() {
    for (const link of every(".emblem rect, .sidebar-tree a, .chapter-map a")) {
      if (!isRead(link) || link.classList.contains("read")) continue;
      link.classList.add("read");
      if (link.dataset.page) continue;
      const said = document.createElementNS(link.namespaceURI, link.closest("svg") ? "title" : "span");
      said.textContent = "read";
      if (link.closest("svg")) link.append(said);
      else { said.className = "visually-hidden"; said.textContent = ", read"; link.append(said); }
    }
  }
  function followReading() {
    markRead();
    const map = document.querySelector(".chapter-map"), end = document.querySelector(".ways-on");
    if (map && (kept.place || kept.read.length || Object.keys(kept.guess).length)) {
      const box = document.createElement("p"), button = document.createElement("button");
      box.className = "book-place";
      if (kept.place) {
        const link = document.createElement("a"), [address, title, section] = kept.place;
        link.href = home + "chapters/" + address;
        link.textContent = `Go on in ${title}${section ? ": " + section : ""}`;
        box.append(link);
      }
      button.textContent = "Forget what I read and answered";
      button.title = "It is kept in this browser only";
      button.addEventListener("click", forget);
      box.append(button);
      map.after(box);
    }
    if (!end || kept.read.includes(page)) return;
    new IntersectionObserver(([entry], seen) => {
      if (!entry.isIntersecting) return;
      seen.disconnect();
      kept.read.push(page);
      remember();
      markRead();
    }).observe(end);
  }

  let printing = null;  // the boxes that only paper has open
  // One open answer per quiz: browsers close the others of the same name. The answer that was given is open again.
  function quizzes() {
    const given = kept.quiz[page] ?? {};
    every(".quiz").forEach((quiz, number) => every(".quiz-right, .quiz-wrong", quiz).forEach((answer, choice) => {
      answer.name = "quiz-" + number;
      answer.open = given[number] === choice;
      answer.addEventListener("toggle", () => {
        if (printing) return;
        if (answer.open) given[number] = choice; else if (given[number] === choice) delete given[number];
        kept.quiz[page] = given;
        remember();
      });
    }));
  }

  // A figure's guess: what is kept of it (null: the reader passed), or, with a second argument, to be kept.
  window.bookGuess = (question, found) => {
    if (found === undefined) return kept.guess[page]?.[question];
    (kept.guess[page] ??= {})[question] = found;
    remember();
    if (found) ownErrors();
  };
  const ownErrors = () => bring("own_errors.js").then(() => bookErrors(kept.guess, page), () => {});

  // Light, dark, or as the system has it: the button goes through the three, and the choice is kept.
  const system = matchMedia("(prefers-color-scheme: dark)");
  function show(mode) {
    root.dataset.mode = mode;
    root.dataset.theme = document.body.dataset.theme = mode === "auto" ? (system.matches ? "dark" : "light") : mode;
    keep("mode", mode);
    for (const button of every(".theme-toggle")) {
      button.title = {auto: "Colors: as the system", light: "Colors: light", dark: "Colors: dark"}[mode];
      button.removeAttribute("aria-label");  // a title is a name
    }
  }
  system.addEventListener("change", () => { if (root.dataset.mode === "auto") show("auto"); });
  function switchTheme() {
    const modes = system.matches ? ["auto", "light", "dark"] : ["auto", "dark", "light"];
    show(modes[(modes.indexOf(root.dataset.mode) + 1) % 3]);
  }

  // The search opens over the page; its script, with the text of the whole book, is loaded with the first use.
  const brought = {};
  const bring = name => brought[name] ??= new Promise((done, failed) => {
    const script = document.createElement("script");
    script.src = home + "_static/" + name;
    script.onload = done;
    script.onerror = () => { delete brought[name]; failed(); };
    document.head.append(script);
  });
  function searchOf(form, place) {
    bring("search.js").then(() => bookSearch.attach(form, place), () => { place.textContent = "The search could not be loaded."; });
  }
  let dialog = null;
  function openSearch() {
    const field = document.querySelector("article .book-search input");
    if (field) return field.focus();
    if (!dialog) {
      dialog = document.createElement("dialog");
      dialog.className = "book-dialog";
      dialog.setAttribute("aria-label", "Search this book");
      dialog.innerHTML = `<form class="book-search" role="search" method="get" action="${home}search.html">
        <input type="search" name="q" aria-label="Words, symbols or names" placeholder="Words, symbols or names"
          autocomplete="off" autocapitalize="off" spellcheck="false"><button type="button">Close</button>
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

  // On narrow screens the contents slide in and out; their labels work with the keyboard, too.
  function sides() {
    for (const [id, name, panel] of [["__navigation", "Contents of the book", ".sidebar-drawer"], ["__toc", "Contents of this page", ".toc-drawer"]]) {
      const box = document.getElementById(id), side = document.querySelector(panel), labels = every(`label[for="${id}"]:not(.overlay)`);
      side.setAttribute("aria-label", name);
      for (const label of labels) {
        label.tabIndex = 0;
        label.setAttribute("role", "button");
        label.title = name;
        label.addEventListener("keydown", event => {
          if (event.key !== "Enter" && event.key !== " ") return;
          event.preventDefault();
          box.click();
          setTimeout(() => every("a", side).find(link => link.checkVisibility())?.focus(), 300);
        });
      }
      const close = event => {
        if (!box.checked || event.type === "keydown" && event.key !== "Escape" || event.type === "click" && !event.target.closest("a")) return;
        box.checked = false;
        if (event.type === "keydown") labels.find(label => label.checkVisibility())?.focus();
      };
      side.addEventListener("keydown", close);
      side.addEventListener("click", close);
    }
    const panel = document.querySelector(".sidebar-scroll"), here = panel?.querySelector(".current-page, .current");
    const place = here ? here.offsetTop - panel.offsetTop : 0;
    if (place > panel.clientHeight - 80) panel.scrollTop = place - panel.clientHeight / 3;  // else it is seen anyway
  }

  // Code can be copied with the mouse. The button is no stop for the Tab key: there are forty on a page, and code can be selected.
  function copyButtons() {
    for (const code of every("div.highlight > pre")) {
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
      await navigator.clipboard.writeText(button.parentElement.querySelector("pre").textContent.trimEnd()).then(
        () => { button.textContent = "Copied"; }, () => { button.textContent = "Not allowed"; });
      setTimeout(() => { button.textContent = "Copy"; }, 1500);
    });
  }

  // Cells that are tagged so can be edited and run in the page; the Python for it is loaded with the first touch.
  function runnable() {
    for (const cell of every(".tag_runs:not(.tag_hide-input)")) {
      const button = document.createElement("button");
      button.className = "book-edit";
      button.textContent = "Edit and run here";
      button.addEventListener("click", async () => {
        button.disabled = true;
        try {
          await bring("lab/python.js");
          await bookPython.open(cell);
          button.remove();
        }
        catch { button.disabled = false; button.textContent = "Python could not be loaded: try again"; }
      });
      cell.querySelector(":scope > .cell_input").after(button);
    }
  }

  // A link into something folded opens it; paper has everything open but the code.
  function openTarget() {
    let target = null;
    try { target = document.getElementById(decodeURIComponent(location.hash.slice(1))); } catch { /* no address of ours */ }
    for (let box = target; box; box = box.parentElement) if (box.tagName === "DETAILS") box.open = true;
    target?.scrollIntoView();
  }
  addEventListener("hashchange", openTarget);
  addEventListener("beforeprint", () => {
    printing = every("details.fold:not([open])");
    every("details[name]").forEach(box => { box.dataset.name = box.name; box.name = ""; });
    printing.forEach(box => { box.open = true; });
  });
  addEventListener("afterprint", () => {
    printing.forEach(box => { box.open = false; });
    every("details[data-name]").forEach(box => { box.name = box.dataset.name; });
    setTimeout(() => { printing = null; }, 100);  // when all boxes have said that they moved
  });
  document.addEventListener("keydown", event => {
    if ((event.ctrlKey || event.metaKey) && !event.altKey && !event.shiftKey && event.key.toLowerCase() === "k") {
      event.preventDefault();
      openSearch();
    }
  });

  // A word of the glossary shows its meaning to a pointer, to the keyboard, and to a finger, whose second touch follows the link.
  function meanings() {
    const words = every("a[title]:has(> .std-term)"), box = document.createElement("div");
    if (!words.length) return;
    Object.assign(box, {id: "meaning", className: "book-meaning", role: "tooltip", hidden: true});
    document.body.append(box);
    let shown = null, fresh = false;
    const hide = () => { shown?.removeAttribute("aria-describedby"); shown = null; box.hidden = true; };
    for (const word of words) {
      const meaning = word.title;
      word.removeAttribute("title");
      const explain = () => {
        fresh = shown !== word;
        hide();
        shown = word;
        word.setAttribute("aria-describedby", box.id);
        box.textContent = meaning;
        box.hidden = false;
        const at = word.getClientRects()[0];
        box.style.left = scrollX + Math.max(8, Math.min(at.left, root.clientWidth - box.offsetWidth - 8)) + "px";
        box.style.top = scrollY + at.bottom + 3 + "px";
      };
      word.addEventListener("focus", () => { if (shown !== word) explain(); });
      word.addEventListener("pointerenter", explain);
      word.addEventListener("blur", hide);
      word.addEventListener("pointerleave", event => {
        if (event.pointerType === "mouse") setTimeout(() => { if (shown === word && !box.matches(":hover")) hide(); }, 150);
      });
      word.addEventListener("click", event => { if (event.pointerType === "touch" && fresh) { event.preventDefault(); fresh = false; } });
    }
    box.addEventListener("pointerleave", hide);
    document.addEventListener("keydown", event => { if (event.key === "Escape") hide(); });
    document.addEventListener("pointerdown", event => { if (shown && !shown.contains(event.target) && !box.contains(event.target)) hide(); });
  }

  addEventListener("DOMContentLoaded", () => {
    show(["light", "dark"].includes(root.dataset.mode) ? root.dataset.mode : "auto");
    root.classList.remove("no-js");
    every(".theme-toggle").forEach(button => button.addEventListener("click", switchTheme));
    every(".book-search-link").forEach(link => link.addEventListener("click", event => { event.preventDefault(); openSearch(); }));
    const field = document.querySelector("article .book-search input");
    if (field) {
      field.value = new URLSearchParams(location.search).get("q") ?? "";
      searchOf(field.form, field.form.querySelector(".book-results"));
      field.focus();
    }
    sides();
    quizzes();
    copyButtons();
    runnable();
    meanings();
    followReader();
    if (Object.keys(kept.guess).length) ownErrors();
    followReading();
    if (location.hash) openTarget();
  });
  addEventListener("load", () =>
    every(".katex-scroll, .rlx-picture, .cell_output .text_html, .table-wrapper, article pre").forEach(box => reachable.observe(box)));
})();
