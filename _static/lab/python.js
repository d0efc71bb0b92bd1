"use strict";
// Python of the page: a cell that is tagged "runs" is edited and run in place. book.js brings this file with the first touch; this
// file brings MicroPython and the book's own few pages of Python (micropython.js, made by _ext/labs.py), which work in a worker,
// so that a run can be stopped. Nothing leaves the reader's machine.
const bookPython = (() => {
  const folder = document.currentScript.src.replace(/[^/]*$/, "");
  const load = (tag, attributes) => new Promise((done, failed) => {
    const node = Object.assign(document.createElement(tag), attributes, { onload: done, onerror: () => failed(new Error("a file of it is missing")) });
    document.head.append(node);
  });
  let loading;
  const engine = () => loading ??= Promise.all([
    load("link", { rel: "stylesheet", href: folder + "python.css" }), load("script", { src: folder + "micropython.js" })]).catch(error => { loading = undefined; throw error; });

  /** What the worker does: start Python once, then answer [number, function, arguments] by [number, answer]. */
  async function serve(start, wasm, python) {
    const waiting = [], post = message => postMessage(message);
    let answer = message => waiting.push(message);
    onmessage = ({ data }) => answer(data);
    const load = await start();
    const url = URL.createObjectURL(new Blob([Uint8Array.from(atob(wasm), c => c.charCodeAt(0))], { type: "application/wasm" }));
    const machine = await load({ url, heapsize: 32 << 20, pystack: 64 << 10, stdout: line => post(["print", line]), stderr: () => {} });
    machine.registerJsModule("engine", { agents, fit });
    machine.runPython("import engine\n" + python);
    answer = ([number, name, ...given]) => {
      let found;
      try { found = machine.globals.get(name)(...given); } catch (error) { found = `Python gave up: ${String(error.message).trim().split("\n").pop()}`; }
      post([number, found]);
    };
    post(["ready"]);
    waiting.splice(0).forEach(message => answer(message));

    // Two things that would be slow in Python, and that no reader writes: 300 agents in lesson 4's maze, and lesson 5's training.
    /** The mean discounted return of each episode: Q-learning in the maze with two prizes, with an epsilon for each episode. */
    function agents(schedule) {
      let seed = 1;
      const random = () => {
        let t = seed = seed + 0x6D2B79F5 | 0;
        t = Math.imul(t ^ t >>> 15, 1 | t);
        t = t + Math.imul(t ^ t >>> 7, 61 | t) ^ t;
        return ((t ^ t >>> 14) >>> 0) / 4294967296;
      };
      const epsilons = JSON.parse(schedule), total = epsilons.map(() => 0), most = 300, prizes = { 7: 10, 8: 1 };
      const leads = Array.from({ length: 12 }, (_, s) => [[-1, 0], [1, 0], [0, -1], [0, 1]].map(([down, right]) => {
        const row = (s >> 2) + down, column = s % 4 + right, next = 4 * row + column;
        return row < 0 || row > 2 || column < 0 || column > 3 || next === 5 ? s : next;   // 5 is the gray cell
      }));
      for (let agent = 0; agent < most; agent++) {
        const Q = Array.from({ length: 12 }, () => [0, 0, 0, 0]);
        epsilons.forEach((epsilon, episode) => {
          for (let s = 0, weight = 1; !prizes[s]; weight *= 0.9) {
            const top = Math.max(...Q[s]), among = random() < epsilon ? [0, 1, 2, 3] : [0, 1, 2, 3].filter(a => Q[s][a] === top);
            const a = among[Math.floor(random() * among.length)], next = leads[s][a], reward = prizes[next] || 0;
            Q[s][a] += 0.5 * (reward + 0.9 * Math.max(...Q[next]) - Q[s][a]);   // the row of a prize stays 0
            total[episode] += weight * reward;
            s = next;
          }
        });
      }
      return JSON.stringify(total.map(sum => sum / most));
    }

    /** Lesson 5's `fit`: a network of one hidden layer on 23 positions, by Adam; the weights after some numbers of steps. */
    function fit(given) {
      const [first, wanted] = JSON.parse(given), H = first.length, x = wanted.map((_, k) => (k - 11) / 12), kept = {};
      const knots = first.map((_, k) => -1 + 2 * (k + 1) / (H + 1)), side = knots.map(knot => knot < 0 ? -1 : 1);
      const weights = [...side.map(s => 3 * s), ...side.map((s, k) => -3 * s * knots[k]), ...first, 0];   // w, b, v, c
      const mean = weights.map(() => 0), square = weights.map(() => 0);
      for (let step = 0; step <= 1000; step++) {
        if ([0, 10, 30, 100, 300, 1000].includes(step))
          kept[step] = [weights.slice(0, H), weights.slice(H, 2 * H), weights.slice(2 * H, 3 * H), weights[3 * H]];
        const slope = weights.map(() => 0);
        x.forEach((at, n) => {
          const inner = first.map((_, k) => weights[k] * at + weights[H + k]);
          const off = 2 / 23 * (inner.reduce((sum, h, k) => sum + weights[2 * H + k] * Math.max(0, h), weights[3 * H]) - wanted[n]);
          inner.forEach((h, k) => {
            if (h <= 0) return;
            slope[k] += off * weights[2 * H + k] * at;
            slope[H + k] += off * weights[2 * H + k];
            slope[2 * H + k] += off * h;
          });
          slope[3 * H] += off;
        });
        slope.forEach((g, k) => {
          mean[k] += 0.1 * (g - mean[k]);
          square[k] += 0.001 * (g * g - square[k]);
          weights[k] -= 0.02 * mean[k] / (1 - 0.9 ** (step + 1)) / (Math.sqrt(square[k] / (1 - 0.999 ** (step + 1))) + 1e-8);
        });
      }
      return JSON.stringify(kept);
    }
  }

  /** A Python of its own in a worker; `ask` promises an answer, `stop` ends it whatever it does. */
  function machine(print) {
    const { script, wasm, python } = self.MICROPYTHON, asked = new Map();
    const text = `const start = async () => { ${script}\nreturn loadMicroPython; };\n(${serve})(start, ${JSON.stringify(wasm)}, ${JSON.stringify(python)});`;
    const address = URL.createObjectURL(new Blob([text], { type: "text/javascript" })), worker = new Worker(address);
    let number = 0, broken = null;
    const fail = error => { broken = error; asked.forEach(([, failed]) => failed(error)); asked.clear(); };
    worker.onmessage = ({ data: [which, what] }) => {
      if (which === "ready") URL.revokeObjectURL(address);
      else if (which === "print") print(what);
      else { asked.get(which)?.[0](what); asked.delete(which); }
    };
    worker.onerror = event => fail(new Error(event.message || "Python did not start"));
    return {
      ask: (name, ...given) => new Promise((done, failed) => {
        if (broken) return failed(broken);
        asked.set(++number, [done, failed]);
        worker.postMessage([number, name, ...given]);
      }),
      stop() { worker.terminate(); fail(null); },
    };
  }

  const el = (tag, attributes = {}, ...children) => {
    const node = Object.assign(document.createElement(tag), attributes);
    node.append(...children);
    return node;
  };

  let boxes = 0;
  /** Put an editor in place of a cell's code. */
  async function open(cell) {
    const source = codeOf(cell);
    const lesson = location.pathname.match(/(\d\d)_[^/]*$/)[1], own = source.startsWith("# Your turn");
    const [, head, mine, tail] = own ? source.match(/^([^\n]*\n)([^]*?)(\n\s*\nexplore\([^]*)$/) : [0, "", source, ""];
    await engine();
    const name = `python-${++boxes}`, said = el("p", { className: "python-said", role: "status" });
    const area = el("textarea", { id: name, value: mine, spellcheck: false, autocapitalize: "off", autocomplete: "off", rows: mine.split("\n").length + 1, wrap: "off" });
    area.dataset.lmSuppressShortcuts = "";
    const label = el("label", { htmlFor: name }, own ? "Your lines. Run: Shift Enter." : "The program, yours to change. Run: Shift Enter.");
    const button = (text, onclick) => el("button", { type: "button", onclick }, text);
    const run = button("Run", () => start()), halt = button("Stop", () => stop("Stopped.")), output = el("pre", { tabIndex: 0, ariaLabel: "Output of your run" });
    const reset = button("Reset", () => { stop(""); area.value = mine; show(false); say("These are the lesson's own lines again."); area.focus(); });
    const copy = button("Copy as notebook cell", async () => {
      try { await navigator.clipboard.writeText(head + area.value + tail); say("Copied. Paste it over this cell in the notebook."); }
      catch { area.select(); say("The browser does not allow it: the lines are selected, to be copied by hand."); }
    });
    const box = el("div", { className: "python-box" }, label, area, el("p", {}, run, halt, reset, copy), said, output);
    cell.querySelector(":scope > .cell_input").replaceWith(box);
    const figure = cell.querySelector("rlx-figure"), controls = figure ? [...figure.querySelectorAll("[data-control]")] : [];
    const stored = figure?.querySelector(".rlx-picture > svg"), line = figure?.querySelector(".rlx-readout");
    const shown = el("div", { className: "python-picture", hidden: true }), sentence = el("p", { className: "python-sentence", hidden: true });
    stored?.after(shown);
    line?.after(sentence);
    output.hidden = true;
    halt.disabled = true;
    let python = null, busy = false, ready = false, again = false, lines = [];

    const say = text => { said.textContent = text; box.dataset.said = text; };
    function working(on) {
      busy = on;
      halt.disabled = !on;
      run.disabled = on;
      box.toggleAttribute("data-busy", on);
    }
    function stop(text) {
      if (busy) { python.stop(); python = null; show(false); }
      working(false);
      if (text) say(text);
    }
    /** The reader's picture, or that of the book. */
    function show(own) {
      ready = own;
      for (const node of [shown, sentence]) node.hidden = !own;
      for (const node of [stored, line, figure?.querySelector(".live-line"), figure?.querySelector(".rlx-told")]) if (node) node.style.display = own ? "none" : "";
    }
    const values = () => controls.map(control => {
      const text = control.dataset.value;
      return text.trim() !== "" && !Number.isNaN(+text) ? +text : text;
    });
    function print(text) {
      lines.push(text);
      output.hidden = false;
      if (lines.length > 2000) return stop("Stopped after 2000 lines of output.");
      output.textContent = lines.join("\n");
    }

    async function start() {
      if (busy) return;
      working(true);
      say("Python is at work. Stop ends it.");
      lines = [];
      output.textContent = "";
      output.hidden = own;
      try {
        python ??= machine(print);
        if (own) {
          const fault = await python.ask("begin", lesson, area.value);
          ready = !fault;
          if (ready) await draw();
          else { show(false); say(fault); }
          const open = figure.querySelector(".rlx-guess > button:last-child");
          if (ready && open) { open.click(); await draw(); }  // own lines tell what the guess asks for: the controls come
          if (ready) say("The picture is drawn with your lines. The controls go on working.");
        } else {
          let fault = "";
          for (const before of programsBefore(cell, area.value)) fault ||= await python.ask("program", before, digits(lesson));
          lines = [];
          output.textContent = "";
          if (fault) fault = `A program before this one: ${fault}`;
          else fault = await python.ask("program", area.value, digits(lesson));
          say(fault || (lines.length ? `Done. What it printed stands below; what the book printed, below that.${/\b(rng|seed)\b/.test(area.value) ? " The page draws its own random numbers." : ""}` : "Done. It printed nothing."));
          python.stop();
          python = null;
        }
      } catch (error) {
        if (error) say(`${error.message}. Press Run to try again.`);
        if (error) python = null;
      }
      if (busy) working(false);
    }

    /** The picture of the controls' present state. */
    async function draw() {
      const found = JSON.parse(await python.ask("state", JSON.stringify(values())));
      if (found.error) { show(false); return say(found.error); }
      shown.innerHTML = picture(found.panels, figure.clientWidth < 480);
      shown.firstChild.setAttribute("aria-label", `Drawn with your lines. With the book's: ${stored.getAttribute("aria-label")}`);
      sentence.textContent = found.said.replace("[stored]", line.textContent.split(/(?=The real batch)/)[1] ?? "");
      show(true);
    }

    /** The controls moved: the picture follows, and what moved meanwhile is drawn after it. */
    async function follow() {
      if (!ready) return;
      if (busy) { again = true; return; }
      working(true);
      try {
        do { again = false; await draw(); } while (again && ready);
      } catch { show(false); }
      working(false);
    }
    if (figure) new MutationObserver(follow).observe(figure.querySelector("form"), { subtree: true, attributeFilter: ["data-value"] });

    area.addEventListener("keydown", event => {
      if (event.key === "Enter" && (event.shiftKey || event.ctrlKey || event.metaKey)) { event.preventDefault(); start(); }
      if (event.key === "Enter" && !event.shiftKey && !event.ctrlKey && !event.metaKey) {
        event.preventDefault();
        const before = area.value.slice(0, area.selectionStart).split("\n").pop();
        area.setRangeText("\n" + before.match(/^ */)[0] + (/:\s*$/.test(before) ? "    " : ""), area.selectionStart, area.selectionEnd, "end");
      }
    });
    area.addEventListener("input", () => { area.rows = area.value.split("\n").length + 1; });
    area.focus();
    return { box, start };
  }

  const digits = lesson => ({ "02": 4, "03": 3, "04": 2 })[lesson] ?? 8;
  /** The programs before a cell whose names it uses, or one of them does, as a notebook would have run them. */
  function programsBefore(cell, source) {
    const cells = [...document.querySelectorAll(".cell.tag_runs")].filter(one => one.compareDocumentPosition(cell) & Node.DOCUMENT_POSITION_FOLLOWING);
    const texts = cells.filter(one => !one.querySelector("rlx-figure")).map(one => one.querySelector("textarea")?.value ?? codeOf(one));
    const kept = [];
    for (const text of texts.reverse()) {
      const heads = [...text.matchAll(/^(?:def |class )(\w+)|^([A-Za-z_][\w, ]*?) *=(?!=)/gm)].flatMap(([, made, set]) => made ?? set.split(/, */));
      if (heads.some(name => new RegExp(`\\b${name}\\b`).test([source, ...kept].join("\n").replace(/"""[^]*?"""|#.*/g, "")))) kept.unshift(text);
    }
    return kept;
  }
  const codeOf = cell => (cell.querySelector(":scope > .cell_input pre") ?? cell.querySelector(".cell_input pre")).textContent.replace(/Copy$/, "").trimEnd();

  // ---------------------------------------------------------------------------------------------- the picture

  /** Panels as one SVG, side by side, or one below the other where it is narrow. */
  function picture(panels, narrow) {
    const W = narrow ? 360 : 740, columns = narrow ? (panels.length > 2 ? 2 : 1) : panels.length, H = panels.length > 2 ? 240 : 280;
    const width = W / columns, rows = Math.ceil(panels.length / columns);
    const drawn = panels.map((panel, n) => `<g transform="translate(${n % columns * width} ${Math.floor(n / columns) * H})">${one(panel, width, H, columns > 2 || narrow && columns > 1)}</g>`);
    return `<svg viewBox="0 0 ${W} ${rows * H}" role="img">${drawn.join("")}</svg>`;
  }

  const escaped = text => String(text).replace(/[&<>"]/g, c => `&#${c.charCodeAt(0)};`);
  const color = name => name === "text" ? "currentColor" : name === "none" ? "none" : `var(--rlx-${name})`;
  let panelsDrawn = 0;

  function one({ x, y, xlabel, ylabel, marks, title, ticks }, W, H, small) {
    const L = ticks?.length === 0 ? 8 : small ? 34 : 46, R = 10, T = title ? 24 : 10, B = xlabel ? 40 : 24, clip = `python-clip-${++panelsDrawn}`;
    const px = v => (L + (W - L - R) * (v - x[0]) / (x[1] - x[0])).toFixed(1), py = v => (H - B - (H - B - T) * (v - y[0]) / (y[1] - y[0])).toFixed(1);
    const text = (at, v, what, anchor, more = "") => `<text x="${at}" y="${v}" text-anchor="${anchor}" ${more}>${escaped(what)}</text>`;
    const scale = ([low, high]) => {
      const rough = (high - low) / 5, unit = 10 ** Math.floor(Math.log10(rough)), step = unit * [1, 2, 5, 10].find(k => k * unit >= rough);
      const first = Math.ceil(low / step - 1e-9);
      return Array.from({ length: Math.floor(high / step + 1e-9) - first + 1 }, (_, k) => +((first + k) * step).toFixed(6));
    };
    let out = `<clipPath id="${clip}"><rect x="${L}" y="${T}" width="${W - L - R}" height="${H - B - T}"/></clipPath>`;
    const xs = ticks ?? scale(x).map(v => [v, v]), ys = ticks?.length === 0 ? [] : scale(y);
    for (const [v, what] of xs) out += text(px(v), H - B + 15, what, "middle");
    for (const v of ys) out += `<path class="python-grid" d="M${L} ${py(v)}H${W - R}"/>` + text(L - 5, +py(v) + 4, v, "end");
    out += `<path class="python-frame" d="M${L} ${T}V${H - B}H${W - R}"/>` + text((L + W - R) / 2, H - 6, xlabel, "middle") + text((L + W - R) / 2, 14, title, "middle");
    if (ylabel) out += text(13, (T + H - B) / 2, ylabel, "middle", `transform="rotate(-90 13 ${(T + H - B) / 2})"`);
    const words = [], key = [], met = [];  // met: places that the key leaves free
    let shapes = "";
    for (const [kind, tone, mx, my, more] of marks) {
      const at = mx.map((v, k) => [v, my[k]]).filter(([a, b]) => a !== null && b !== null), [what, size] = kind.split(" "), paint = color(tone);
      const dashes = { dashed: "6 4", dotted: "2 3", dashdot: "8 3 2 3" }[/^dashed/.test(more ?? "") ? "dashed" : size], dash = dashes ? ` stroke-dasharray="${dashes}"` : "";
      if (what === "line") {
        at.forEach(([a, b], k) => {
          const [c, d] = at[k + 1] ?? [a, b];
          for (let t = 0; t < 1; t += 0.125) met.push([+px(a + t * (c - a)), +py(b + t * (d - b))]);
        });
        shapes += `<polyline fill="none" stroke="${paint}" stroke-width="${{ thin: 1.1, thick: 5 }[size] ?? 2.2}"${dash} points="${at.map(([a, b]) => `${px(a)},${py(b)}`).join(" ")}"/>`;
      } else if (what === "bar" || what === "area") shapes += `<rect fill="${paint}" fill-opacity="${what === "bar" ? 0.75 : 0.22}" x="${px(mx[0] - more)}" width="${(px(mx[0] + more) - px(mx[0] - more)).toFixed(1)}" y="${py(Math.max(...my))}" height="${(py(Math.min(...my)) - py(Math.max(...my))).toFixed(1)}"/>`;
      else if (what === "cell") shapes += `<rect fill="${paint}" fill-opacity="${more === "#" ? 0.6 : 0.3}" stroke="currentColor" x="${px(mx[0] - 0.5)}" width="${(px(mx[0] + 0.5) - px(mx[0] - 0.5)).toFixed(1)}" y="${py(my[0] + 0.5)}" height="${(py(my[0] - 0.5) - py(my[0] + 0.5)).toFixed(1)}"/>` + ("GT".includes(more) ? text(px(mx[0]), +py(my[0]) + 4, more, "middle") : "");
      else if (what === "word") for (const [a, b] of at) words.push(text(Math.min(W - R, Math.max(L, px(a))), +py(b) - (size === "above" ? 9 : 1), more, a < x[0] + 0.12 * (x[1] - x[0]) ? "start" : a > x[1] - 0.12 * (x[1] - x[0]) ? "end" : "middle", tone === "text" ? "" : `style="fill: ${color(tone)}"`));
      else for (const [a, b] of at) {
        if (what === "square") shapes += `<rect fill="${paint}" x="${px(a) - 5}" y="${py(b) - 5}" width="10" height="10"/>`;
        else if (what === "tick") shapes += `<path stroke="${paint}" stroke-width="2" d="M${px(a)} ${py(b) - 6}v12"/>`;
        else shapes += `<circle fill="${paint}" cx="${px(a)}" cy="${py(b)}" r="${{ points: 1.3, disk: more }[what] ?? (size ? 3.4 : 6)}"/>`;
      }
      if (more && typeof more === "string" && more !== "dashed" && /line|dot/.test(what)) key.push([paint, more, dash]);
    }
    const shownKey = [...new Map(key.map(pair => [pair.join(), pair])).values()];
    out += `<g clip-path="url(#${clip})">${shapes}</g>${words.join("")}`;
    const wide = 33 + 6.2 * Math.max(...shownKey.map(([, what]) => what.length)), high = 6 + 15 * shownKey.length;
    const corners = [[L + 4, T], [W - R - wide, T], [(L + W - R - wide) / 2, T], [L + 4, H - B - high - 4], [W - R - wide, H - B - high - 4]];
    const full = ([left, top]) => met.filter(([a, b]) => a > left && a < left + wide && b > top && b < top + high).length;
    const [left, top] = corners.reduce((best, one) => full(one) < full(best) ? one : best);
    shownKey.forEach(([paint, what, dash], k) => { out += `<path stroke="${paint}" stroke-width="2.4"${dash} d="M${left + 6} ${top + 10 + 15 * k}h20"/>` + text(left + 31, top + 14 + 15 * k, what, "start"); });
    return out;
  }

  return { open, machine, engine };
})();
