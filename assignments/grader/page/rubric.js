// The grading page: shows one answer and its rubric, and sends every change at once. What a student wrote goes into
// the page by textContent and value only; the rubric is the instructor's own, set by the server.
"use strict";

const $ = id => document.getElementById(id);
const TABS = ["reference", "question", "remarks"];
let all, place = 0, part = 0, shown = null; // overview; which answer; which part; what is known of this answer
let wanted = 0; // the answer that was asked for last
let typed = ""; // digits of a number of points, if a part can have ten or more
let sending = false, waiting = null; // one request at a time; the newest state that waits for its turn

async function ask(path, body) {
  const options = body === undefined ? {} : {
    method: "POST", headers: {"Content-Type": "application/json"}, body: JSON.stringify(body), keepalive: true,
  };
  const response = await fetch(path, options);
  const data = await response.json().catch(() => ({}));
  if (!response.ok) throw Object.assign(new Error(data.error || `refused (${response.status})`), {status: response.status});
  return data;
}

function say(text, bad = false) {
  $("state").textContent = text;
  $("state").classList.toggle("bad", bad);
}

// ---- saving

function save() {
  shown.changed = false;
  waiting = {id: shown.id, answer: shown.answer, points: shown.points, items: shown.items, comment: shown.comment, of: shown};
  say("Saving");
  send();
  show();
}

async function send() {
  if (sending || !waiting) return;
  sending = true;
  const {of, ...state} = waiting;
  waiting = null;
  try {
    const saved = await ask("save", {...state, version: of.version});
    of.version = saved.version;
    all.answers.find(one => one.id === state.id).done = saved.done;
    if (!waiting) say("Saved");
    progress();
  } catch (error) {
    if (error.status === 409 || error.status === 400) {
      waiting = null;
      say(`Not saved: ${error.message}`, true);
      if (error.status === 409) await go(place, true);
    } else {
      waiting = waiting || {...state, of};
      say("NOT SAVED, trying again: the command may have ended", true);
      await new Promise(resolve => setTimeout(resolve, 1000));
    }
  }
  sending = false;
  send();
}

async function settled() {
  while (sending || waiting) await new Promise(resolve => setTimeout(resolve, 20));
}

window.addEventListener("beforeunload", event => { if (sending || waiting) event.preventDefault(); });

// ---- showing

const plural = (number, word) => `${number} ${word}${number === 1 ? "" : "s"}`;

function progress() {
  const done = all.answers.filter(one => one.done).length, number = all.answers.length;
  $("progress").textContent = `${done} of ${number} graded`;
  $("done").style.width = `${number ? 100 * done / number : 0}%`;
  [...$("who").options].forEach((option, index) => {
    option.textContent = `${all.answers[index].done ? "\u2713" : "\u00a0"} ${all.answers[index].label}`;
  });
}

async function go(next, again = false) {
  if (next < 0 || next >= all.answers.length || (next === wanted && shown && !again)) return;
  wanted = next;
  if (!again) await settled();
  const id = all.answers[next].id, found = await ask(`answer/${id}`);
  if (wanted !== next) return; // a faster key came in between
  if (!again) await settled(); // what was typed while the new answer was on its way is the old one's
  place = next;
  shown = {id, ...found};
  typed = "";
  part = Math.max(0, all.rubric.parts.findIndex(one => !(one.title in shown.points)));
  $("who").selectedIndex = place;
  $("answer").textContent = shown.text || "(no text)";
  $("comment").value = shown.comment;
  $("student").scrollTop = $("grading").scrollTop = 0;
  if (!again) say(shown.version ? "Saved" : "");
  show();
  if (!again && scrollY) scrollTo(0, 0); // one column: the answer comes first
}

function given(title) {
  return title in shown.points ? shown.points[title] : null;
}

function show() {
  const notes = [];
  if (shown.changed) notes.push("The student handed in another answer since you graded this one. Read it again: your next change says that the points are for the new one.");
  if (shown.more) notes.push(`Only the beginning is shown: ${shown.more} more characters are in the notebook.`);
  if (shown.pictures) notes.push(`${plural(shown.pictures, "picture")} in the notebook: not shown here.`);
  $("warning").textContent = notes.join(" ");
  $("warning").hidden = !notes.length;
  $("table").hidden = !shown.table;
  if (shown.table) $("table").textContent = `In the table of grades: ${plural(shown.table.points, "point")}${shown.table.note ? ", " + shown.table.note : ""}. Points given here replace it at the next export.`;
  const numbers = all.rubric.parts.map(one => given(one.title)).filter(one => one !== null);
  $("sum").textContent = `\u2013 ${numbers.reduce((a, b) => a + b, 0)} of ${all.points}`;
  all.rubric.parts.forEach((one, index) => {
    const box = $("parts").children[index], points = given(one.title), chosen = shown.items[one.title] || [];
    box.classList.toggle("here", index === part);
    box.querySelector(".head").setAttribute("aria-expanded", index === part);
    const label = box.querySelector(".points");
    label.textContent = `${points === null ? "\u2013" : points} of ${one.points}`;
    label.classList.toggle("given", points !== null);
    box.querySelectorAll(".item").forEach(item => item.setAttribute("aria-pressed", chosen.includes(+item.dataset.item)));
    box.querySelectorAll(".numbers button").forEach(button => button.setAttribute("aria-pressed", points === +button.dataset.points));
  });
}

function element(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

function build() {
  document.title = `${all.title}: ${all.question}`;
  $("title").textContent = `${all.title}: ${all.question}`;
  $("comment").maxLength = all.longest;
  for (const name of TABS) $(name).innerHTML = all.rubric[name] || "<p>(nothing)</p>";
  $("who").append(...all.answers.map(() => document.createElement("option")));
  all.rubric.parts.forEach((one, index) => {
    const head = element("button", {type: "button", class: "head"}, element("span", {}), element("span", {class: "points"}));
    head.firstChild.textContent = one.title;
    head.addEventListener("click", () => { part = index; typed = ""; show(); });
    const body = element("div", {class: "body"}), numbers = element("div", {class: "numbers", role: "group", "aria-label": "Points"});
    const step = one.points > 10 ? 1 : 0.5;
    for (let value = 0; value <= one.points; value += step) {
      const button = element("button", {type: "button", "data-points": value}, String(value));
      button.addEventListener("click", () => { part = index; setPoints(value); });
      numbers.append(button);
    }
    const text = element("div", {});
    text.innerHTML = one.html;
    text.querySelectorAll(".items").forEach(spot => {
      for (let number = +spot.dataset.from; number < +spot.dataset.to; number++) {
        const item = one.items[number], label = element("span", {});
        label.innerHTML = item.html;
        const button = element("button", {type: "button", class: "item", "data-item": number, "aria-pressed": "false"},
          element("kbd", {}, letter(number)), element("b", {}, (item.adds ? "+" : "") + item.points), label);
        button.addEventListener("click", () => { part = index; choose(number); });
        spot.append(button);
      }
    });
    body.append(numbers, text);
    $("parts").append(element("div", {class: "part"}, head, body));
  });
  tab(0);
  progress();
}

const letter = number => number < 10 ? "abcdefghij"[number] : "";

function tab(which) {
  TABS.forEach((name, index) => {
    $(name).hidden = index !== which;
    $(`tab-${name}`).setAttribute("aria-selected", index === which);
    $(`tab-${name}`).tabIndex = index === which ? 0 : -1;
  });
}

// ---- grading

function setPoints(value) {
  const one = all.rubric.parts[part];
  if (value > one.points || value < 0) return say(`${one.title}: at most ${plural(one.points, "point")}`, true);
  shown.points[one.title] = value;
  delete shown.items[one.title];
  save();
}

function choose(number) {
  const one = all.rubric.parts[part];
  if (number >= one.items.length) return;
  const before = shown.items[one.title] || [], item = one.items[number];
  let after = before.includes(number) ? before.filter(other => other !== number)
    : [...before.filter(other => item.adds || one.items[other].adds), number];
  after.sort((a, b) => a - b);
  if (after.length) {
    shown.items[one.title] = after;
    const sum = after.reduce((points, other) => points + one.items[other].points, 0);
    shown.points[one.title] = Math.min(one.points, sum);
  } else {
    delete shown.items[one.title];
    delete shown.points[one.title];
  }
  save();
}

function digit(key) {
  const most = all.rubric.parts[part].points;
  const both = typed + key;
  typed = most >= 10 && +both <= most ? both : key;
  setPoints(+typed);
}

function half() {
  const points = given(all.rubric.parts[part].title);
  const value = points === null ? 0.5 : points % 1 ? Math.floor(points) : points + 0.5;
  setPoints(value > all.rubric.parts[part].points ? points - 0.5 : value);
}

function clear() {
  const title = all.rubric.parts[part].title;
  delete shown.points[title];
  delete shown.items[title];
  save();
}

function move(step) {
  part = Math.min(all.rubric.parts.length - 1, Math.max(0, part + step));
  typed = "";
  show();
  $("parts").children[part].scrollIntoView({block: "nearest"});
}

function nextOpen() {
  const number = all.answers.length;
  for (let step = 1; step <= number; step++) {
    const index = (place + step) % number;
    if (!all.answers[index].done) return go(index);
  }
  say("Every answer is graded");
}

async function enter() {
  await settled();
  try {
    const done = await ask("export", {});
    say(`Exported: ${done.entered} entered, ${done.same} as before, ${done.open} not graded yet`);
    const {table} = await ask(`answer/${all.answers[place].id}`);
    shown.table = table;
    show();
  } catch (error) {
    say(`Not exported: ${error.message}`, true);
  }
}

function help() {
  $("keys").hidden = !$("keys").hidden;
  $("help").setAttribute("aria-expanded", !$("keys").hidden);
}

const KEYS = {
  ArrowLeft: () => go(wanted - 1), ArrowRight: () => go(wanted + 1), ArrowUp: () => move(-1), ArrowDown: () => move(1),
  u: nextOpen, ".": half, ",": half, Backspace: clear, Delete: clear, x: enter, "?": help,
  r: () => tab((TABS.findIndex(name => !$(name).hidden) + 1) % TABS.length),
  Enter: () => { $("comment").focus(); },
};

document.addEventListener("keydown", event => {
  const target = event.target;
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || !shown) return;
  if (target === $("comment")) {
    if (event.key === "Escape") target.blur();
    return;
  }
  if (target.closest("select") || (event.key === "Enter" && target.closest("button, summary"))) return;
  const action = KEYS[event.key];
  if (/^[0-9]$/.test(event.key)) digit(event.key);
  else if (/^[a-j]$/.test(event.key)) choose("abcdefghij".indexOf(event.key));
  else if (action) action();
  else return;
  event.preventDefault();
});

$("comment").addEventListener("input", () => { shown.comment = $("comment").value; save(); });
$("back").addEventListener("click", () => go(wanted - 1));
$("on").addEventListener("click", () => go(wanted + 1));
$("who").addEventListener("change", () => { go($("who").selectedIndex); $("who").blur(); });
$("export").addEventListener("click", enter);
$("help").addEventListener("click", help);
TABS.forEach((name, index) => $(`tab-${name}`).addEventListener("click", () => tab(index)));

(async () => {
  all = await ask("overview");
  build();
  if (!all.answers.length) return say("There are no answers");
  const open = all.answers.findIndex(one => !one.done);
  await go(Math.max(0, open), true);
  say("");
})().catch(error => say(error.message, true));
