"use strict";
lab.define("page", function (use) {
  // What the labs' pages share: elements, knobs, curves, and a run that can be started, paused, stepped and stopped.

  /** An element with attributes, listeners (onclick: f) and children. */
  function el(tag, attributes = {}, ...children) {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (typeof value === "function") node[name] = value;
      else if (value === true) node.setAttribute(name, "");
      else if (value !== false && value !== null && value !== undefined) node.setAttribute(name, value);
    }
    node.append(...children);
    return node;
  }

  const button = (text, onclick, attributes = {}) => el("button", { type: "button", onclick, ...attributes }, text);

  /** One of several words or numbers; `key` is its name in a link. A preset number that is not among them joins them. */
  function choice(name, options, { value = options[0], onchange, key = keyOf(name) } = {}) {
    const isNumber = typeof value === "number", all = options.includes(value) ? options : [...options, value].sort((a, b) => a - b);
    const select = el("select", { onchange, "data-key": key, "aria-label": name || null }, ...all.map(option => el("option", { value: option, selected: option === value }, option)));
    return { node: el("label", { class: "lab-knob" }, name, " ", select), input: select, get value() { return isNumber ? +select.value : select.value; } };
  }
  const keyOf = name => name.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "") || name;
  const seeds = (name = "Seed", value = 1, onchange) => choice(name, Array.from({ length: 20 }, (_, k) => k), { value, onchange });

  // A setting in a link: what differs from the page's own, "slip=0.4&run". Whoever follows it finds all else as the page has it.
  const controls = root => [...root.querySelectorAll("[data-key]")];
  const first = node => node.options ? [...node.options].find(option => option.defaultSelected).value : node.defaultValue;
  const linkOf = root => `#${root.id}:${new URLSearchParams(controls(root).filter(node => node.value !== first(node)).map(node => [node.dataset.key, node.value]))}`;
  function put(node, value) {
    if (node.value === value) return;
    node.value = value;
    if (node.selectedIndex === -1) node.value = first(node);
    node.dispatchEvent(new Event("change", { bubbles: true }));
  }
  function follow(root, wanted) {
    if (wanted.has("run")) root.reset();
    for (const node of controls(root)) if (!wanted.has(node.dataset.key)) put(node, first(node));
    for (const [key, value] of wanted) controls(root).filter(node => node.dataset.key === key).forEach(node => put(node, value));
    // "run" presses the lab's own button, "run=learners" the one of that name; weights may be on their way
    const named = [...root.querySelectorAll("[data-run]")].find(node => node.dataset.run === wanted.get("run"));
    const run = named ?? root.querySelector(".lab-run"), press = () => run.disabled ? setTimeout(press, 100) : run.click();
    if (wanted.has("run")) press();
    named?.closest(".lab-go").scrollIntoView();
  }
  /** The link itself, at the foot of a lab. */
  function share(root) {
    const link = el("a", { href: "#", onclick: event => {
      event.preventDefault();
      link.href = linkOf(root);
      history.replaceState(null, "", link.hash);
      navigator.clipboard?.writeText(link.href).catch(() => {});
      link.textContent = "The link stands in the address bar, and is copied";
    } }, "A link to these settings");
    root.append(el("p", { class: "lab-small" }, link));
  }

  /** The same as a row of buttons, for a word that is changed often; a guess begins with none of them pressed. */
  function palette(name, options, { value = options[0], onpress = () => {} } = {}) {
    const press = word => { value = word; buttons.forEach(b => b.setAttribute("aria-pressed", b.textContent === word)); };
    const buttons = options.map(word => button(word, () => { press(word); onpress(); }));
    press(value);
    return { node: el("span", { class: "lab-palette", role: "group", "aria-label": name }, el("span", {}, name), ...buttons), get value() { return value; }, set value(word) { press(word); } };
  }
  /** A question before something is shown: `told` puts what is true beside what was said; who passes is told neither. */
  function guess(question, options, onpress) {
    const asked = palette(question, [...options, "Just show"], { value: null, onpress }), said = el("p", { class: "lab-small", role: "status" });
    return { node: el("div", {}, asked.node, said), get given() { return asked.value !== null; }, again() { asked.value = null; said.textContent = ""; },
      told(truth) { said.textContent = !asked.value || asked.value === "Just show" ? "" : `You guessed: ${asked.value}. It is: ${truth}.`; } };
  }

  const narrow = typeof matchMedia === "function" ? matchMedia("(max-width: 600px)") : { matches: false };
  const frame = (title, ...nodes) => el("fieldset", {}, el("legend", {}, title), ...nodes);
  /** What starts and steps a lab: its results stand below, and where room is scarce the settings between them fold. */
  function runs(...parts) { const node = frame(...parts); node.className = "lab-go"; return node; }
  const group = (title, ...nodes) => el("details", { class: "lab-fold", open: !narrow.matches }, el("summary", {}, title), el("div", {}, ...nodes));

  /** The source of what runs, to be unfolded. */
  function code(...functions) {
    const pre = el("pre", { tabindex: 0 });
    const details = el("details", { class: "lab-code" }, el("summary", {}, "The code that runs"), pre);
    const unindented = text => text.replace(/\n {2}/g, "\n");
    details.ontoggle = () => { pre.textContent = functions.map(f => unindented(String(f))).join("\n\n"); };
    return details;
  }

  const still = typeof matchMedia === "function" ? matchMedia("(prefers-reduced-motion: reduce)") : { matches: false };
  /** The next number above x of the form 1, 2, 3, 4, 5, 6 or 8 times a power of ten, so that its half reads well too. */
  function nice(x) {
    const unit = 10 ** Math.floor(Math.log10(x));
    return unit * [1, 2, 3, 4, 5, 6, 8, 10].find(k => k * unit >= x - 1e-9);
  }

  const short = x => Math.abs(x) >= 1000 ? `${Math.round(x / 100) / 10}k` : `${Math.round(x * 100) / 100}`;

  /**
   * Draw lines into a figure: [{name, points: [[x, y]], tone, dash}] over axes from 0 to xMax and from yMin to yMax.
   * What they say stands below them in words too. They are drawn with the next picture of the page, once.
   */
  function curves(figure, lines, axes) {
    figure.svg.setAttribute("aria-label", axes.words);
    if (!figure.draw) requestAnimationFrame(() => { const { draw } = figure; figure.draw = null; draw(); });
    figure.draw = figure.again = () => drawCurves(figure, lines, axes);
  }
  function drawCurves(figure, lines, { xMax, yMin = 0, yMax, x, y, marks = [], splits = [], log = false }) {
    const W = Math.max(300, Math.min(640, figure.width || 640)), H = 220, L = 48, R = 12, T = 26, B = 40, round = v => v.toFixed(1);
    const px = v => L + (W - L - R) * Math.min(1, v / xMax), scale = log ? Math.log10 : v => v;
    const low = scale(yMin), py = v => H - B - (H - B - T) * (scale(Math.max(yMin, Math.min(yMax, v))) - low) / (scale(yMax) - low);
    const text = (at, v, what, anchor) => `<text x="${round(at)}" y="${round(v)}" text-anchor="${anchor}">${what}</text>`;
    let out = "";
    const heights = log ? Array.from({ length: Math.round(scale(yMax) - low) + 1 }, (_, k) => yMin * 10 ** k) : [0, 0.5, 1].map(k => yMin + k * (yMax - yMin));
    for (const v of heights) out += `<path class="lab-grid" d="M${L} ${round(py(v))}H${W - R}"/>` + text(L - 6, py(v) + 4, log ? +v.toPrecision(1) : short(v), "end");
    for (const k of [0, 0.5, 1]) out += text(px(k * xMax), H - B + 16, short(k * xMax), k === 1 ? "end" : "middle");
    for (const { at, what } of marks) out += `<path class="lab-mark" d="M${L} ${round(py(at))}H${W - R}"/>` + text(W - R, py(at) - 5, what, "end");
    for (const { at, what } of splits) out += `<path class="lab-mark" d="M${round(px(at))} ${T}V${H - B}"/>` + text(px(at) + 5, H - B - 6, what, "start");
    for (const { points, tone, dash = "" } of lines)
      out += `<polyline class="lab-${tone}" stroke-dasharray="${dash}" points="${points.map(p => `${round(px(p[0]))},${round(py(p[1]))}`).join(" ")}"/>`;
    out += text((L + W - R) / 2, H - 6, x, "middle") + text(L, 14, y, "start");
    figure.svg.setAttribute("viewBox", `0 0 ${W} ${H}`);
    figure.svg.innerHTML = out;
    figure.key.replaceChildren(...lines.filter(line => line.name).map(line => el("span", { class: `lab-${line.tone}`, "data-dash": line.dash ? "" : null }, line.name)));
  }

  function figure() {
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg"), key = el("p", { class: "lab-key" });
    svg.setAttribute("viewBox", "0 0 640 220");
    svg.setAttribute("role", "img");
    svg.setAttribute("class", "lab-curves");
    const made = { svg, key, node: el("div", {}, svg, key) };
    new ResizeObserver(([{ contentRect: { width } }]) => {   // asking for the width would make the page lay itself out at once
      if (width === made.width) return;
      made.width = width;
      made.again?.();
    }).observe(svg);
    return made;
  }

  /**
   * The state of a lab as its page shows it: a sentence, a score, and running, stopped or solved. A lab that is out of
   * sight pauses: `sleep` and `wake` are called only while it runs; `reset` ends a run. While one is under way (`begun`),
   * `live` takes a change into it and says so; what it does not take counts from the next run, which `again` begins.
   */
  class Panel {
    constructor(root, { sleep = () => {}, wake = () => {}, reset = sleep, begun = () => false, live = () => "", again = "" } = {}) {
      this.root = root;
      root.reset = reset;
      this.status = el("p", { class: "lab-status", role: "status" });
      this.later = el("p", { class: "lab-small", role: "status" });
      this.node = el("div", {}, this.later, this.status);
      root.addEventListener("change", ({ target }) => { if (begun()) this.later.textContent = live(target) || `What you changed counts from the next run: ${again}.`; });
      root.addEventListener("click", event => this.show(event.target.closest(".lab-go button")));
      this.running = false;
      let seen = true;
      const look = () => {
        const awake = seen && !document.hidden;
        if (awake === this.awake) return;
        this.awake = awake;
        if (this.running) (awake ? wake : sleep)();
      };
      this.awake = true;
      new IntersectionObserver(([entry]) => { seen = entry.isIntersecting; look(); }).observe(root);
      document.addEventListener("visibilitychange", look);
    }
    /** Say a sentence; spoken at once where it is the end of something, and else only seen. */
    say(text, spoken = true) {
      this.status.setAttribute("aria-live", spoken ? "polite" : "off");
      this.status.textContent = text;
    }
    score(value) { this.root.dataset.score = String(Math.round(value * 10000) / 10000); }
    set state(state) { this.running = state === "running"; this.root.dataset.state = state; }
    get state() { return this.root.dataset.state; }
    /** On a narrow page a press folds the settings, and its results are brought into view. */
    show(pressed) {
      if (!pressed || !narrow.matches) return;
      for (const fold of this.root.querySelectorAll(".lab-fold")) fold.open = false;
      const go = pressed.closest(".lab-go");
      requestAnimationFrame(() => { if (innerHeight - go.getBoundingClientRect().bottom < 420) go.scrollIntoView(); });
    }
    /** A press on the run button: pause what runs, or start it. */
    press(runButton, go, pause) {
      if (this.running) return pause();
      this.state = "running";
      runButton.textContent = "Pause";
      go();
    }
  }

  return { el, button, choice, seeds, follow, share, palette, guess, frame, runs, group, code, still, nice, curves, figure, Panel };
});
