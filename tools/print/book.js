// Makes one printable document of the site's pages; tools/print_book.py runs it in the browser that prints.
// The document holds one <article data-page="chapters/03_maze.html"> per page, as the site has it.
"use strict";

const make = (tag, attributes = {}, ...inside) => {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...inside);
  return element;
};
const all = (selector, root = document) => [...root.querySelectorAll(selector)];
const slug = page => page.replace(/\.html$/, "").replace(/^chapters\//, "");
const plain = element => {                                  // the words of a heading, without what prints a formula
  const copy = element.cloneNode(true);
  all(".headerlink", copy).forEach(link => link.remove());
  return copy.textContent.replace(/\s+/g, " ").trim();
};

// ---- one document: names that are unique in it, links that stay in it

// Signs that an address need not escape: for a name with others, Chromium looks through the whole document at every link.
const nameOf = (page, id = "") => `${slug(page)}--${id}`.replace(/[^\w.-]/g, "-");

function joinPages() {
  const articles = all("article[data-page]");
  const pages = new Set(articles.map(article => article.dataset.page));
  const broken = [];
  for (const article of articles) {
    for (const element of all("[id]", article)) {
      if (element.closest("svg, script")) continue;                        // pictures have names of their own, as on the site
      const name = nameOf(article.dataset.page, element.id);
      if (document.getElementById(name)) element.removeAttribute("id");    // a link leads to the first of a name, as on the site
      else element.id = name;
    }
    article.id = nameOf(article.dataset.page);
  }
  for (const article of articles) {
    const here = new URL(article.dataset.page, "book://site/");
    for (const link of all("a[href]", article)) {
      const to = new URL(link.getAttribute("href"), here);
      if (to.protocol !== "book:") continue;
      const page = to.pathname.replace(/^\//, "");
      const target = nameOf(page, decodeURIComponent(to.hash.slice(1)));
      if (!pages.has(page) || to.hash.startsWith("#lab-")) {
        link.replaceWith(...link.childNodes);                              // what only the site has: source code, files, settings of a lab
      } else if (document.getElementById(target)) {
        link.setAttribute("href", `#${target}`);
      } else {
        broken.push(`${article.dataset.page}: ${link.getAttribute("href")}`);
      }
    }
  }
  return broken;
}

// ---- what paper cannot do

// Folded code draws the pictures; the notebooks have it.
function dropTools() {
  all("details.hide, .headerlink, .viewcode-link, .book-run, .book-noscript, script:not([type='application/json']), .rlx-room, .rlx-handle, .live-names").forEach(one => one.remove());
  all("[tabindex]").forEach(one => one.removeAttribute("tabindex"));
}

// A formula for readers that speak is its TeX; its second form, MathML, would print nothing and weigh as much as the first.
function nameFormulas() {
  for (const formula of all(".katex")) {
    const tex = formula.querySelector("annotation")?.textContent.trim();
    formula.querySelector(".katex-mathml")?.remove();
    formula.querySelector(".katex-html")?.removeAttribute("aria-hidden");
    if (!formula.closest("h1, h2, h3, h4, h5, h6")) {                      // a bookmark takes the words of its heading
      formula.setAttribute("role", "img");
      formula.setAttribute("aria-label", tex ?? "");
    }
  }
}

// An interactive picture becomes a few of its states. A picture that plays is seen on its way and at its end; any other control as it
// stands and at its farther end. Two controls give all four pairs; of more, each moves alone.
const FRAMES = 4;
const COLUMN = 178;                                         // mm, as book.css has it

function telling(start, sizes, player) {
  const pairs = start.map((value, control) => {
    const last = sizes[control] - 1;
    if (control === player) return [value || Math.round(last / 3), last];
    return [value, 2 * value > last ? 0 : last].sort((one, other) => one - other);
  });
  if (pairs.length < 3) return pairs.reduce((states, pair) => states.flatMap(state => pair.map(value => [...state, value])), [[]]);
  const base = start.map((value, control) => control === player ? pairs[control][1] : value);
  const moved = base.map((value, control) => base.with(control, pairs[control].find(other => other !== value) ?? value));
  return [base, ...moved].slice(0, FRAMES);
}

// The number of a change's value in a state, as rlbook_lib/explore.js reads it.
function keyOf([, , controls, , list], state, data) {
  const key = controls.reduce((sum, control) => sum * data.sizes[control] + state[control], 0);
  return list < 0 ? key : data.indices[list][key];
}

function frame(picture, said, state, names, data) {
  const copy = picture.cloneNode(true), elements = all("*", copy);
  let readout = said;
  for (const change of data.changes) {
    const [place, name, , values, , before, after] = change, value = values[keyOf(change, state, data)];
    const element = elements[place];
    if (name === "#readout") readout = value === null ? "" : before + value + after;
    else if (name[0] === "=") continue;                                    // a number for the live formula, which paper has not
    else if (value === null) element.removeAttribute(name);
    else if (name === "#text") element.textContent = before + value + after;
    else if (name === "#markup") element.innerHTML = before + value + after;
    else element.setAttribute(name, before + value + after);
  }
  const values = state.map((value, control) => `${names[control]}: ${data.texts[control][value]}`).join(", ");
  copy.setAttribute("aria-label", `${copy.getAttribute("aria-label") ?? ""} (${values})`);
  return make("div", {class: "print-frame", "data-state": state.join()}, copy, make("p", {}, make("b", {}, values), readout ? ` ${readout}` : ""));
}

function chosen(control) {
  const options = all("input[type=radio]", control), select = control.querySelector("select");
  if (options.length) return options.findIndex(option => option.hasAttribute("checked"));
  if (select) return Math.max(0, all("option", select).findIndex(option => option.hasAttribute("selected")));
  return Number(control.querySelector("input").getAttribute("value"));
}

// A high picture is narrower than its column, as far as its words can still be read.
function narrow(picture, column, height, least) {
  const [, , wide, high] = picture.getAttribute("viewBox").split(/\s+/).map(Number);
  picture.style.width = `${100 * Math.min(1, Math.max(least, height * wide / high / column))}%`;
}

function stillPictures() {
  all(".rlx-picture > svg").forEach(picture => narrow(picture, COLUMN, 74, 0.72));
  for (const figure of all(".rlx")) {
    const source = document.getElementById(figure.dataset.states);
    if (!source) continue;
    const data = JSON.parse(source.textContent), controls = all("[data-control]", figure), picture = figure.querySelector(".rlx-picture > svg");
    const names = controls.map(control => control.querySelector(".rlx-name").textContent);
    const player = Number(figure.querySelector("[data-plays]")?.dataset.plays ?? -1);
    const seen = new Map();
    for (const state of telling(controls.map(chosen), data.sizes, player)) {
      const drawn = JSON.stringify(data.changes.map(change => change[3][keyOf(change, state, data)]));
      if (!seen.has(drawn)) seen.set(drawn, state);
    }
    const said = figure.querySelector(".rlx-readout")?.textContent ?? "";
    if (seen.size > 1) narrow(picture, COLUMN / 2 - 2, 58, 0.86);
    const frames = [...seen.values()].map(state => frame(picture, said, state, names, data));
    const number = data.sizes.reduce((product, size) => product * size, 1);
    const note = make("p", {class: "print-still"}, `${frames.length} of ${number} states; on the site, the controls show them all.`);
    figure.replaceChildren(make("div", {class: frames.length > 1 ? "print-frames" : "print-one"}, ...frames), note);
  }
}

// The words of a small picture are set larger, as far as they do not meet: all pictures at once, because each look at one lays out
// the whole book.
const LARGER = [1.35, 1.22, 1.1, 1];

function meetings(picture) {
  const room = picture.getBoundingClientRect();
  const boxes = all("text", picture).map(word => word.getBoundingClientRect()).filter(box => box.width > 0);
  const met = new Set();
  boxes.forEach((one, number) => {
    if (one.left < room.left - 1 || one.right > room.right + 1 || one.top < room.top - 1 || one.bottom > room.bottom + 1) met.add(number);
    for (let other = number + 1; other < boxes.length; other += 1) {
      const box = boxes[other], inside = 0.2 * Math.min(one.height, box.height);   // the box of a word is higher than its letters
      if (Math.min(one.right, box.right) - Math.max(one.left, box.left) > 0
        && Math.min(one.bottom, box.bottom) - Math.max(one.top, box.top) > inside) met.add(`${number} ${other}`);
    }
  });
  return met;
}

function enlargeWords() {
  const pictures = all(".print-frames svg").map(picture => ({picture, before: meetings(picture), sized: all("[font-size]", picture)
    .map(element => [element, Number.parseFloat(element.getAttribute("font-size"))])}));
  let waiting = pictures;
  for (const factor of LARGER) {
    for (const {sized} of waiting) for (const [element, size] of sized) element.setAttribute("font-size", (size * factor).toFixed(1));
    waiting = waiting.filter(({picture, before}) => [...meetings(picture)].some(pair => !before.has(pair)));
  }
}

// ---- boxes: open in place, or gathered at the end of their page with a link there and back

function openBoxes() {
  for (const box of all("details.fold:not(.quiz-right, .quiz-wrong)")) {
    const [kind, title] = box.matches(".mistake, .solution") ? ["admonition", "admonition-title"] : ["print-box", "print-box-title"];
    const open = make("div", {class: `${box.className} ${kind}`}, make("p", {class: title}, ...box.querySelector("summary").childNodes),
      ...box.querySelector(".folded").childNodes);
    open.classList.remove("fold");
    if (box.id) open.id = box.id;
    box.replaceWith(open);
  }
}

function gather(article, name, title, entries) {
  if (!entries.length) return;
  const root = article.querySelector("section");
  root.append(make("section", {id: `${article.id}print-${name}`, class: `print-gathered print-${name}`}, make("h2", {}, title), ...entries));
}

// The options stay; what each of them is answered comes at the end.
function gatherQuizzes(article) {
  const entries = [];
  all(".quiz", article).forEach((quiz, number) => {
    const here = `${article.id}quiz-${number}`, there = `${article.id}answers-${number}`;
    const title = quiz.querySelector(".admonition-title");
    const options = make("ol", {class: "print-options"}), answers = make("ol", {class: "print-options"});
    for (const answer of all("details.quiz-right, details.quiz-wrong", quiz)) {
      const text = answer.querySelector("summary");
      options.append(make("li", {}, ...text.childNodes));
      answers.append(make("li", {}, ...answer.querySelector(".folded").childNodes));
      answer.remove();
    }
    quiz.id ||= here;
    quiz.append(options, make("p", {class: "print-see"}, make("a", {href: `#${there}`}, "Answers at the end of these pages")));
    const back = make("a", {href: `#${quiz.id}`}, ...title.cloneNode(true).childNodes);
    entries.push(make("div", {id: there, class: "print-entry"}, make("p", {class: "print-entry-title"}, back), answers));
  });
  gather(article, "answers", "Answers to the quizzes", entries);
}

function gatherSolutions(article) {
  const entries = [];
  for (const solution of all(".solution", article)) {
    const title = solution.querySelector(".admonition-title"), number = title.textContent.match(/Exercise [\d.]*\d/)?.[0];
    const exercise = number && all(".exercise").find(one => one.querySelector(".caption-number")?.textContent.trim() === number);
    if (!exercise) throw new Error(`${article.dataset.page}: the solution ${solution.id} has no exercise`);
    exercise.append(make("p", {class: "print-see"}, make("a", {href: `#${solution.id}`}, "Solution at the end of these pages")));
    title.replaceChildren(make("a", {href: `#${exercise.id}`}, ...title.childNodes));
    entries.push(solution);
  }
  gather(article, "solutions", "Solutions of the exercises", entries);
}

// ---- headings: a chapter is one bookmark with its sections below it, its Deeper page among them

function nestDeeper() {
  for (const article of all("article[data-below]")) {
    for (let level = 5; level >= 1; level -= 1) {
      for (const heading of all(`h${level}`, article)) {
        const lower = make(`h${level + 1}`, {class: `print-h${level}`}, ...heading.childNodes);
        if (heading.id) lower.id = heading.id;
        heading.replaceWith(lower);
      }
    }
  }
}

function fillContents() {
  const list = document.getElementById("print-contents");
  let part = null;
  for (const article of all("article[data-page]")) {
    if (article.dataset.part && article.dataset.part !== part) {
      part = article.dataset.part;
      list.append(make("p", {class: "print-part"}, part));
      article.querySelector("section").prepend(make("p", {class: "print-part-start"}, part));
    }
    const title = plain(article.querySelector("h1, h2"));
    const link = make("a", {href: `#${article.id}`}, make("span", {}, title), make("i"), make("b", {"data-to": article.id}, "000"));
    list.append(make("p", "below" in article.dataset ? {class: "print-below"} : {}, link));
  }
}

// The fields of a named tuple say no more than their names.
function dropAliases() {
  all("dl.py dd > p").filter(text => /^Alias for field number \d+$/.test(text.textContent.trim())).forEach(text => text.remove());
}

// Two empty lines between functions are one on paper.
function closeUp() {
  for (const code of all("pre")) {
    const walker = document.createTreeWalker(code, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) walker.currentNode.data = walker.currentNode.data.replace(/\n{3,}/g, "\n\n");
  }
}

// ---- what is too wide becomes smaller; what fits on a page stays whole

// Everything is measured before anything is changed: a change in between would lay out the whole book again.
function fit() {
  const boxes = all(".katex-scroll, .table-wrapper, .cell_output .text_html, .cell_output pre, .formula-sheet .formula");
  const shares = boxes.map(box => box.scrollWidth > box.clientWidth + 1 ? (box.clientWidth - 1) / box.scrollWidth : 1);
  boxes.forEach((box, number) => {
    if (shares[number] < 1) box.style.zoom = Math.max(0.4, shares[number]).toFixed(3);
  });
}

// Share of a page up to which a block stays whole: where it would be longer, the white space before it costs more than the split.
const WHOLE = {
  "p, li, dl.py > dt, div.math": 0.2, "pre": 0.16, "table": 0.3, "figure, .rlx": 0.7, "div.cell, .cell_output": 0.25, ".sd-row": 0.5,
  ".admonition, .exercise, .proof, .print-box, .print-answers .print-entry": 0.25,
};

// Up to here, the words below a heading and the question before a picture stay with what follows; before a higher picture they
// stay where they are, as long as the picture alone leaves less white.
const LEAD = 0.07;
const LED = 0.28;

// Of all its pieces, where it goes on in the next column.
const heightOf = block => [...block.getClientRects()].reduce((sum, rect) => sum + rect.height, 0);

function keepWhole(pageHeight) {
  const short = Object.entries(WHOLE).flatMap(([blocks, share]) =>
    all(blocks).filter(block => heightOf(block) < share * pageHeight));
  const leads = all("h2 + p, h3 + p, h4 + p, h5 + p, p:has(+ div.cell .rlx)").filter(block => {
    const picture = block.nextElementSibling?.querySelector(".rlx");
    return heightOf(block) < LEAD * pageHeight && (!picture || heightOf(picture) < LED * pageHeight);
  });
  short.forEach(block => block.classList.add("print-whole"));
  leads.forEach(block => block.classList.add("print-lead"));
}

// What still leaves the column, for the one who prints: the nearest heading and the block.
function tooWide() {
  const found = [];
  for (const article of all("article[data-page]")) {
    const two = getComputedStyle(article).columnCount === "2", box = article.getBoundingClientRect();
    const middle = (box.left + box.right) / 2;
    for (const block of all("pre, table, svg, img, .katex-html, p, .sig", article)) {
      const rects = [...block.getClientRects()];
      if (rects.some(rect => rect.right > 1 + (two && rect.left < middle - 1 && !block.closest("h1, .print-h1") ? middle : box.right))) found.push(`${article.dataset.page}: ${block.tagName} ${block.textContent.trim().slice(0, 60)}`);
    }
  }
  return found;
}

window.preparePrint = pageHeight => {
  dropTools();
  const broken = joinPages();
  nameFormulas();
  stillPictures();
  openBoxes();
  const articles = all("article[data-page]");
  for (const article of articles) {
    gatherQuizzes(article);
    gatherSolutions(article);
  }
  nestDeeper();
  fillContents();
  dropAliases();
  closeUp();
  enlargeWords();
  fit();
  keepWhole(pageHeight);
  const groups = [];                                        // a chapter: a page and those below it
  for (const article of articles) {
    if ("below" in article.dataset && groups.length) groups.at(-1).push(article.id);
    else groups.push([article.id]);
  }
  return {broken, wide: tooWide(), closed: all("details").length, groups, headings: all("h1, h2, h3, h4, h5, h6").map(plain)};
};

// What is not printed now leaves the document, which Chromium walks through once a page; a name stays for every place that a link
// leads to, and a link to every place that is here, because a PDF names only places with links.
let pieces = null;
window.showOnly = (articles, before) => {
  pieces ??= {front: all(".print-cover, .print-contents"), articles: all("article[data-page]"), main: document.querySelector("main"),
    targets: [...new Set(all("a[href^='#']").map(link => link.getAttribute("href").slice(1)))], stubs: make("div", {hidden: ""})};
  const {front, main, targets, stubs} = pieces;
  main.replaceChildren(...(articles.length ? pieces.articles.filter(one => articles.includes(one.id)) : front));
  stubs.remove();
  const away = targets.filter(name => !document.getElementById(name)).map(name => make("i", {id: name}));
  stubs.replaceChildren(...targets.map(name => make("a", {href: `#${name}`})), ...away);
  main.append(stubs);
  document.documentElement.style.counterReset = `page ${before}`;
};

window.numberContents = numbers => {
  for (const cell of pieces.front.flatMap(one => all("[data-to]", one))) cell.textContent = numbers[cell.dataset.to];
};
