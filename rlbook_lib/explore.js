// The static twin of an interactive figure: native inputs move one SVG by changing attributes.
// No library, no network. It runs once per figure, right after the figure's markup.
(function (script) {
  "use strict";
  var figures = script && script.closest(".rlx")
    ? [script.closest(".rlx")]
    : document.querySelectorAll(".rlx:not([data-ready])");
  Array.prototype.forEach.call(figures, start);

  function start(root) {
    var source = root.querySelector('script[type="application/json"]');
    if (!source || root.hasAttribute("data-ready")) return;
    root.setAttribute("data-ready", "");
    var data = JSON.parse(source.textContent);
    var svg = root.querySelector(".rlx-picture > svg");
    var all = svg.querySelectorAll("*");
    var suffix = unique(svg);
    var readout = root.querySelector(".rlx-readout");
    var button = root.querySelector(".rlx-play");
    var boxes = Array.prototype.slice.call(root.querySelectorAll("[data-control]"));
    var sizes = data.sizes;
    var state = boxes.map(read);
    var shown = data.changes.map(function () { return -1; });
    var moving = [];  // the groups of the artists that move, in drawing order
    data.changes.forEach(function (change) {
      var group = change[1] === "#readout" ? null : all[change[0]];
      while (group && group.parentNode !== svg) group = group.parentNode;
      if (group && moving.indexOf(group) < 0) moving.push(group);
    });
    var playing = 0, player = button ? +button.getAttribute("data-plays") : -1;
    var still = window.matchMedia("(prefers-reduced-motion: reduce)");

    // Two copies of one figure may share a page: the later one renames its ids (clip regions).
    function unique(picture) {
      var named = picture.querySelectorAll("[id]"), end = "";
      if (!named.length) return end;
      for (var n = 2; document.querySelectorAll('[id="' + named[0].id + end + '"]').length > (end ? 0 : 1); n++) end = "-" + n;
      if (end) {
        all.forEach(function (element) {
          ["clip-path", "fill"].forEach(function (name) {
            var value = element.getAttribute(name);
            if (value && value.indexOf("url(#") === 0) element.setAttribute(name, value.replace(")", end + ")"));
          });
        });
        named.forEach(function (element) { element.id += end; });
      }
      return end;
    }

    function read(box) {
      var range = box.querySelector("input[type=range], select");
      if (range) return +range.value;
      return +box.querySelector("input[type=radio]:checked").value;
    }

    function write(index, value) {
      var box = boxes[index], range = box.querySelector("input[type=range], select");
      if (range) range.value = value;
      else box.querySelectorAll("input[type=radio]")[value].checked = true;
    }

    // A change is [element, attribute, controls it depends on, values, number of its index list or -1, prefix, suffix].
    function draw() {
      boxes.forEach(function (box, index) {
        var text = data.texts[index][state[index]];
        var output = box.querySelector("output"), range = box.querySelector("input[type=range]");
        if (output) output.textContent = text;
        if (range) range.setAttribute("aria-valuetext", text);
      });
      data.changes.forEach(function (change, number) {
        var key = 0;
        change[2].forEach(function (control) { key = key * sizes[control] + state[control]; });
        if (change[4] >= 0) key = data.indices[change[4]][key];
        if (key === shown[number]) return;
        shown[number] = key;
        var value = change[3][key], element = all[change[0]], name = change[1];
        if (value === null) { element.removeAttribute(name); return; }
        value = change[5] + value + change[6];
        if (name === "#text") element.textContent = value;
        else if (name === "#markup") element.innerHTML = suffix ? value.replace(/(url\(#[^)]*)\)/g, "$1" + suffix + ")") : value;
        else if (name === "#readout") { if (readout.textContent !== value) readout.textContent = value; }
        else element.setAttribute(name, suffix && value.indexOf("url(#") === 0 ? value.replace(")", suffix + ")") : value);
      });
    }

    function caption() {
      if (!button) return;
      button.firstChild.textContent = still.matches ? "Step" : playing ? "Pause" : "Play";
    }

    function stop() {
      window.clearTimeout(playing);
      playing = 0;
      caption();
      if (readout) readout.setAttribute("aria-live", "polite");
    }

    function step() {
      state[player] += 1;
      write(player, state[player]);
      draw();
    }

    function film() {
      if (!root.isConnected) return;
      step();
      if (state[player] < sizes[player] - 1) playing = window.setTimeout(film, data.pace);
      else stop();
    }

    // The picture as it stood before the last move, faint, below the one that moves.
    var trace = null, moved = 0;
    function remember() {
      var now = Date.now();
      if (!data.ghost || now - moved < 700) { moved = now; return; }
      moved = now;
      if (trace) trace.remove();
      trace = document.createElementNS(svg.namespaceURI, "g");
      trace.setAttribute("class", "rlx-ghost");
      moving.forEach(function (group) { trace.appendChild(group.cloneNode(true)); });
      svg.insertBefore(trace, moving.length ? moving[0] : null);
    }

    function set(index, value) {
      if (playing) stop();
      if (state[index] === value) return;
      remember();
      state[index] = value;
      draw();
    }

    boxes.forEach(function (box, index) {
      box.addEventListener("input", function () { set(index, read(box)); });
    });

    // A handle is [control, left top width height, point of each value, which distances count]: press or pull in the picture.
    data.handles.forEach(function (handle) {
      var area = document.createElementNS(svg.namespaceURI, "rect"), held = false;
      ["x", "y", "width", "height"].forEach(function (name, number) { area.setAttribute(name, handle[1][number]); });
      area.setAttribute("class", "rlx-handle");
      area.setAttribute("data-way", handle[3]);
      svg.appendChild(area);
      var range = boxes[handle[0]].querySelector("input, select");
      range.setAttribute("aria-description", "The picture can be pulled, too.");
      function pull(event) {
        var at = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
        var best = 0, least = Infinity;
        handle[2].forEach(function (point, number) {
          var dx = handle[3] === "y" ? 0 : point[0] - at.x, dy = handle[3] === "x" ? 0 : point[1] - at.y;
          if (dx * dx + dy * dy < least) { least = dx * dx + dy * dy; best = number; }
        });
        write(handle[0], best);
        set(handle[0], best);
      }
      area.addEventListener("pointerdown", function (event) { held = true; area.setPointerCapture(event.pointerId); pull(event); });
      area.addEventListener("pointermove", function (event) { if (held) pull(event); });
      ["pointerup", "pointercancel"].forEach(function (name) { area.addEventListener(name, function () { held = false; }); });
    });
    root.querySelectorAll("input, select, button").forEach(function (element) {
      element.disabled = false;
      // JupyterLab would take the arrow keys for its own commands.
      element.setAttribute("data-lm-suppress-shortcuts", "");
    });
    root.querySelector("form").addEventListener("submit", function (event) { event.preventDefault(); });
    if (button) {
      button.addEventListener("click", function () {
        if (playing) { stop(); return; }
        if (state[player] >= sizes[player] - 1) { state[player] = -1; }
        // A reader who asked for less motion gets one state a press, and no film.
        if (still.matches) { step(); return; }
        if (readout) readout.setAttribute("aria-live", "off");
        playing = 1;
        caption();
        film();
      });
      if (still.addEventListener) still.addEventListener("change", stop);
      caption();
    }
    draw();
  }
})(document.currentScript);
