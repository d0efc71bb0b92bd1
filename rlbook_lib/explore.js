// A figure: native inputs move one SVG by changing attributes. No library, no network.
// The element starts itself, whenever and wherever it comes into a page.
(() => {
  "use strict";
  if (customElements.get("rlx-figure")) return;
  const still = matchMedia("(prefers-reduced-motion: reduce)"), phone = matchMedia("(max-width: 32rem)");
  const LEAST = 10;      // CSS pixels of a letter on a phone
  const TALLEST = 640;   // CSS pixels of a stacked picture

  customElements.define("rlx-figure", class extends HTMLElement {
    connectedCallback() {
      if (document.readyState === "loading") addEventListener("DOMContentLoaded", () => start(this), {once: true});
      else start(this);
    }
  });

  // A guess is kept by the book's page (book.js); in JupyterLab, which has none, until its tab is closed.
  function kept(question, found) {
    if (window.bookGuess) return bookGuess(question, found);
    if (!document.body.dataset.jpThemeName) return;
    try {
      const all = JSON.parse(sessionStorage.getItem("rlbook-guesses")) ?? {};
      if (found !== undefined) sessionStorage.setItem("rlbook-guesses", JSON.stringify({...all, [question]: found}));
      return all[question];
    } catch { /* nothing is kept */ }
  }

  function start(root) {
    const svg = root.querySelector(".rlx-picture > svg");
    if (!svg || root.dataset.ready) return;
    root.dataset.ready = "yes";
    const source = root.querySelector('script[type="application/json"]') ?? document.getElementById(root.dataset.states);
    const suffix = ownNames(svg);
    if (source) control(root, svg, JSON.parse(source.textContent), suffix);
    let before = 0;
    new ResizeObserver(() => {
      if (svg.clientWidth !== before) fit(svg);
      before = svg.clientWidth;
    }).observe(svg);
  }

  // Two copies of one figure may share a page: the later one renames its ids (clip regions).
  function ownNames(svg) {
    const named = svg.querySelectorAll("[id]");
    let end = "";
    if (!named.length) return end;
    for (let n = 2; document.querySelectorAll(`[id="${named[0].id}${end}"]`).length > (end ? 0 : 1); n++) end = "-" + n;
    if (!end) return end;
    for (const name of ["clip-path", "fill"])
      svg.querySelectorAll(`[${name}^="url(#"]`).forEach(part => part.setAttribute(name, part.getAttribute(name).replace(")", end + ")")));
    named.forEach(part => { part.id += end; });
    return end;
  }

  function control(root, svg, data, suffix) {
    const all = svg.querySelectorAll("*"), sizes = data.sizes, shown = data.changes.map(() => -1);
    const readout = root.querySelector(".rlx-readout"), button = root.querySelector(".rlx-play");
    const boxes = [...root.querySelectorAll("[data-control]")], state = boxes.map(read);
    const player = button ? +button.dataset.plays : -1;
    const moving = new Set();  // the groups of the artists that move, in drawing order
    for (const [place, name] of data.changes) {
      let group = /^(#readout|=)/.test(name) ? null : all[place];
      while (group && group.parentNode !== svg) group = group.parentNode;
      if (group) moving.add(group);
    }
    let playing = 0, trace = null, moved = 0, end = sizes[player] - 1, lay = () => {};

    function read(box) {
      return +box.querySelector("input[type=range], select, input:checked").value;
    }

    function write(index, value) {
      const range = boxes[index].querySelector("input[type=range], select");
      if (range) range.value = value;
      else boxes[index].querySelectorAll("input")[value].checked = true;
    }

    // A change is [element, attribute, controls it depends on, values, number of its index list or -1, prefix, suffix].
    function draw() {
      boxes.forEach((box, index) => {
        const text = box.dataset.value = data.texts[index][state[index]];  // what paper shows
        const output = box.querySelector("output");
        if (!output) return;
        output.textContent = text;
        box.querySelector("input").setAttribute("aria-valuetext", text);
      });
      data.changes.forEach(([place, name, controls, values, list, before, after], number) => {
        let key = controls.reduce((sum, control) => sum * sizes[control] + state[control], 0);
        if (list >= 0) key = data.indices[list][key];
        if (key === shown[number]) return;
        shown[number] = key;
        const element = all[place];
        if (values[key] === null) return element.removeAttribute(name);
        const value = before + values[key] + after;
        if (name === "#readout") readout.textContent = value;
        else if (name[0] === "=") root.setAttribute("data-term-" + name.slice(1), value);  // for the live formula
        else if (name === "#text") element.textContent = value;
        else if (name !== "#markup") element.setAttribute(name, suffix && value.startsWith("url(#") ? value.replace(")", suffix + ")") : value);
        else {
          element.innerHTML = suffix ? value.replace(/(url\(#[^)]*)\)/g, `$1${suffix})`) : value;
          grow(svg, element);
        }
      });
      lay();
    }

    function caption() {
      if (button) button.firstChild.textContent = still.matches ? "Step" : playing ? "Pause" : "Play";
    }

    function stop() {
      clearTimeout(playing);
      playing = 0;
      end = sizes[player] - 1;
      caption();
      readout?.setAttribute("aria-live", "polite");
    }

    function step() {
      write(player, ++state[player]);
      draw();
    }

    function film() {
      if (!root.isConnected) return;
      step();
      if (state[player] < end) playing = setTimeout(film, data.pace);
      else stop();
    }

    // The picture as it stood before the last move, faint, below the one that moves.
    function remember() {
      const pause = Date.now() - moved;
      moved += pause;
      if (!data.ghost || pause < 700) return;
      trace?.remove();
      trace = document.createElementNS(svg.namespaceURI, "g");
      trace.setAttribute("class", "rlx-ghost");
      trace.append(...[...moving].map(group => group.cloneNode(true)));
      svg.insertBefore(trace, [...moving][0] ?? null);
    }

    function set(index, value) {
      if (playing) stop();
      if (state[index] === value) return;
      remember();
      state[index] = value;
      draw();
    }

    boxes.forEach((box, index) => box.addEventListener("input", () => set(index, read(box))));

    // A handle is [control, left top width height, point of each value, which distances count]: press or pull in the picture.
    // Where several share a part of the picture, the one is pulled that has a point nearest to the press.
    const apart = ([, , points, way], at) => points.map(([x, y]) => (way === "y" ? 0 : (x - at.x) ** 2) + (way === "x" ? 0 : (y - at.y) ** 2));
    const parts = new Set(data.handles.map(([, box]) => String(box)));
    for (const part of parts) {
      const several = data.handles.filter(([, box]) => String(box) === part), gap = (handle, at) => Math.min(...apart(handle, at));
      let held = several[0];
      for (const [index] of several) boxes[index].querySelector("input, select").setAttribute("aria-description", "The picture can be pulled, too.");
      press(svg, held[1], held[3], (at, begins) => {
        if (begins) held = several.reduce((best, one) => gap(one, at) < gap(best, at) ? one : best);
        const far = apart(held, at), best = far.indexOf(Math.min(...far));
        write(held[0], best);
        set(held[0], best);
      });
    }

    // A question comes first: the reader puts a mark on an axis, or chooses. Then the controls show, and the truth over the mark.
    function ask({question, at, cover, choices, truth, way, box, range: [low, high, step] = [], ends, unit}) {
      const row = document.createElement("div"), told = document.createElement("p"), slider = document.createElement("input");
      const covers = cover.map(part => draft(svg, "rect", "rlx-cover", part)), marks = draft(svg, "g", "rlx-marks");
      const say = value => choices ? choices[value] : `${+value.toPrecision(3)}${unit}`.replace("-", "−");
      let guess, known = false;

      const mark = (name, value) => {
        const place = Math.round(ends[0] + (value - low) / (high - low) * (ends[1] - ends[0]));
        marks.querySelector("." + name)?.remove();
        draft(marks, "path", name).setAttribute("d", way === "x" ? `M${place} ${box[1]}v${box[3]}` : `M${box[0]} ${place}h${box[2]}`);
      };
      // The marks belong to the question's own setting, and the truth shows when the film has come there.
      lay = () => {
        if (guess === undefined) return;
        const here = at.every((value, index) => index === player || state[index] === value);
        marks.style.display = here ? "" : "none";
        known ||= here && state[player] === at[player];
        if (known && !choices) mark("rlx-truth", truth);
        const yours = guess === null ? "" : `Your guess${choices || !here ? "" : ", dashed"}: ${say(guess)}. `;
        const text = yours + (known ? `The truth${here ? "" : " there"}: ${say(truth)}.` : "");
        if (told.textContent !== text) told.textContent = text;  // it is spoken each time
      };
      const answer = (value, before = false) => {
        const plays = value !== null && state[player] < at[player] && !still.matches, held = row.contains(document.activeElement);
        guess = value;
        known = before;
        [row, ...covers].forEach(one => one.remove());
        if (value === null) marks.querySelector(".rlx-yours")?.remove();  // who passes has no mark
        root.classList.remove("rlx-asks");
        if (value !== null && !choices) mark("rlx-yours", value);
        if (before) return lay();
        const off = choices ? value === truth : (value - truth) / (high - low);
        kept(question, value === null ? null : [value, say(value), say(truth), off]);
        at.forEach((to, index) => { if (index !== player || !plays) write(index, state[index] = to); });
        draw();
        if (held) (button ?? boxes[0].querySelector("input, select")).focus();
        if (!plays) return;
        end = at[player];
        button.click();
      };
      const offer = (text, value) => {
        const choice = row.appendChild(document.createElement("button"));
        choice.type = "button";
        choice.textContent = text;
        choice.addEventListener("click", () => answer(value()));
      };

      row.className = "rlx-guess";
      row.setAttribute("role", "group");
      row.setAttribute("aria-label", "Your guess");
      told.className = "rlx-told";
      told.setAttribute("role", "status");
      if (choices) choices.forEach((text, value) => offer(text, () => value));
      else {
        const point = () => {
          mark("rlx-yours", +slider.value);
          slider.nextSibling.textContent = say(+slider.value);
          slider.setAttribute("aria-valuetext", say(+slider.value));
        };
        row.innerHTML = '<span class="rlx-name">Press in the picture, or here</span><output class="rlx-value"></output>';
        row.lastChild.before(slider);
        Object.assign(slider, {type: "range", min: low, max: high, step, value: low});
        slider.setAttribute("aria-label", question);
        slider.addEventListener("input", point);
        slider.addEventListener("keydown", event => {
          if (event.key !== "Enter") return;
          event.preventDefault();  // it would press the button that is reached next
          answer(+slider.value);
        });
        press(marks, box, way, place => {
          slider.value = low + (place[way] - ends[0]) / (ends[1] - ends[0]) * (high - low);
          point();
        });
        offer("Guess", () => +slider.value);
        point();
      }
      offer("Just show", () => null);
      root.querySelector(".rlx-picture").after(row, told);
      root.classList.add("rlx-asks");
      const before = kept(question);
      if (before !== undefined) answer(before && before[0], true);
    }
    if (data.guess) ask(data.guess);
    for (const element of root.querySelectorAll("input, select, button")) {
      element.disabled = false;
      element.dataset.lmSuppressShortcuts = "";  // JupyterLab would take the arrow keys for its own commands
    }
    root.querySelector("form").addEventListener("submit", event => event.preventDefault());
    button?.addEventListener("click", () => {
      if (playing) return stop();
      if (state[player] >= sizes[player] - 1) state[player] = -1;
      if (still.matches) return step();  // who asked for less motion gets one state a press, and no film
      readout?.setAttribute("aria-live", "off");
      playing = 1;
      caption();
      film();
    });
    still.addEventListener("change", stop);
    caption();
    draw();
  }

  function draft(parent, kind, name, box = []) {
    const part = parent.appendChild(document.createElementNS(parent.namespaceURI, kind));
    part.setAttribute("class", name);
    box.forEach((value, number) => part.setAttribute(["x", "y", "width", "height"][number], value));
    return part;
  }

  // A part of the picture that can be pressed or pulled in; ``then`` gets the place in the picture's units.
  function press(parent, box, way, then) {
    const rect = draft(parent, "rect", "rlx-handle", box);
    let held = false;
    rect.dataset.way = way;
    const pull = event => then(new DOMPoint(event.clientX, event.clientY).matrixTransform(rect.getScreenCTM().inverse()), event.type === "pointerdown");
    rect.addEventListener("pointerdown", event => { held = true; rect.setPointerCapture(event.pointerId); pull(event); });
    rect.addEventListener("pointermove", event => { if (held) pull(event); });
    for (const name of ["pointerup", "pointercancel"]) rect.addEventListener(name, () => { held = false; });
  }

  // On a phone the panels of a wide picture stand one below the other, in two rows at most, and small letters grow, as far as
  // they do not meet more often than before; labels at the side make room, and so does the edge of the picture.
  function fit(svg) {
    const whole = svg.dataset.whole ??= svg.getAttribute("viewBox"), [, , wide, high] = whole.split(" ").map(Number);
    const width = svg.clientWidth, words = [...svg.querySelectorAll("text")].filter(word => word.textContent.trim());
    const show = box => {
      svg.setAttribute("viewBox", box.join(" "));
      svg.style.aspectRatio = `${box[2]} / ${box[3]}`;
    };
    show([0, 0, wide, high]);
    for (const part of svg.children) part.removeAttribute("transform");
    grow(svg, svg, svg.dataset.least = 0);
    if (!phone.matches || !width || Math.min(...words.map(sizeOf)) * width / wide >= LEAST) return;
    const usual = meetings(words).length, stacked = stack(svg, wide, high, TALLEST / width);
    for (const least of [LEAST, LEAST - 1, LEAST - 2, LEAST - 3]) {
      let box = stacked;
      for (let round = 0; round < 3; round++) {
        show(box);
        grow(svg, svg, svg.dataset.least = least * box[2] / width);
        const [left, top, , , scale] = [...box, width / box[2]], frame = svg.getBoundingClientRect();
        for (const [one, other] of meetings(words)) {
          const side = [one, other].find(word => word.getAttribute("transform")), rest = side === one ? other : one;
          if (side && !rest.getAttribute("transform"))
            side.style.translate = `${(parseFloat(side.style.translate) || 0) - (side.getBoundingClientRect().right - rest.getBoundingClientRect().left) / scale}px`;
        }
        const edges = words.map(word => word.getBoundingClientRect()).filter(edge => edge.width);
        const x = Math.min(left, ...edges.map(edge => left + (edge.left - frame.left) / scale));
        const y = Math.min(top, ...edges.map(edge => top + (edge.top - frame.top) / scale));
        box = [x, y, Math.max(left + box[2], ...edges.map(edge => left + (edge.right - frame.left) / scale)) - x,
          Math.max(top + box[3], ...edges.map(edge => top + (edge.bottom - frame.top) / scale)) - y].map(Math.round);
      }
      show(box);
      if (meetings(words).length <= usual) return;
    }
  }

  function sizeOf(word) {
    return +word.getAttribute("font-size");
  }

  function grow(svg, part, least = +svg.dataset.least) {
    for (const word of part.querySelectorAll("text")) {
      word.style.fontSize = sizeOf(word) < least ? least + "px" : "";
      word.style.translate = "";
    }
  }

  function meetings(words) {
    const boxes = words.map(word => [word, word.getBoundingClientRect()]);
    return boxes.flatMap(([one, a], number) => boxes.slice(number + 1)
      .filter(([, b]) => a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 2 && b.top < a.bottom - 2)
      .map(([other]) => [one, other]));
  }

  // The picture's new view box, after its right panels moved below the left ones, where that is not too tall.
  function stack(svg, wide, high, tallest) {
    const [cut, frames] = middle(svg, wide), most = Math.max(cut, wide - cut);
    if (!cut || 2 * high / most > tallest) return [0, 0, wide, high];
    let below = false;
    for (const part of svg.children) {
      const clip = part.querySelector("[clip-path]")?.getAttribute("clip-path"), own = frames.get(clip) ?? part.getBBox();
      if (part.tagName === "defs" || own.width > 0.9 * wide) continue;
      if (own.width) below = own.x + own.width / 2 > cut;  // what draws nothing now stands with what was drawn before it
      if (below) part.setAttribute("transform", `translate(${-cut} ${high})`);
    }
    return [0, 0, most, 2 * high];
  }

  // Where to part a picture of several panels: between two axes, where the fewest words are cut, near the middle; and all axes.
  function middle(svg, wide) {
    const frames = new Map([...svg.querySelectorAll("clipPath")].filter(clip => !clip.firstChild.hasAttribute("transform"))
      .map(clip => [`url(#${clip.id})`, clip.firstChild.getBBox()]));
    const boxes = [...frames.values()], words = [...svg.querySelectorAll("text")].map(text => text.getBBox());
    const ends = box => box.x + box.width, crossed = x => words.filter(word => word.x < x && x < ends(word)).length;
    const cuts = [];
    for (const {x: to} of boxes) {
      const from = Math.max(...boxes.map(ends).filter(end => end <= to + 1));
      if (from < 0 || boxes.some(box => box.x < to - 1 && ends(box) > to + 1)) continue;
      const places = Array.from({length: 41}, (_, n) => from + (to - from) * n / 40);
      cuts.push(places.reduce((best, x) => crossed(x) < crossed(best) ? x : best));
    }
    const off = cut => Math.abs(cut - wide / 2);
    return [cuts.reduce((best, cut) => off(cut) < off(best) ? cut : best, cuts[0] ?? 0), frames];
  }
})();
