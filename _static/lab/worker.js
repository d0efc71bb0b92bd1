"use strict";
lab.define("worker", function () {
  // A run is a generator of a module's `train`: it yields null where it may pause, and records. It works in a worker
  // where there is one, so that the page never waits, and else on the page itself, in slices of a few milliseconds.

  /** Work a run off in slices; it can be told to pause, to go on, to go on to its next record only, and to take other settings, which it finds in `live`. */
  function work(train, settings, report, slice) {
    const live = {}, generator = train({ ...settings, live });
    let timer, paused = false, single = false;
    function go() {
      for (const end = performance.now() + slice; performance.now() < end;) {
        let next;
        try { next = generator.next(); } catch (error) { return report({ error: error.message }); }
        if (next.done) return report({ over: true });
        if (next.value) {
          report({ record: next.value });
          if (single) { paused = true; single = false; return report({ paused }); }
        }
      }
      timer = setTimeout(go);
    }
    timer = setTimeout(go);
    return {
      pause() { paused = true; clearTimeout(timer); },
      go() { if (paused) { paused = false; timer = setTimeout(go); } },
      step() { single = true; this.go(); },
      stop() { paused = true; clearTimeout(timer); },
      set(changes) { Object.assign(live, changes); },
    };
  }

  /** In the worker: orders are [what, module, settings]. */
  function serve(use) {
    let job;
    onmessage = ({ data: [order, module, settings] }) => {
      if (order === "train") job = work(use(module).train, settings, record => postMessage(record), 100);
      else job?.[order](module);
    };
  }

  /** Start a run of a module. `report` gets {record}, {paused}, {over} or {error}. */
  function launch(module, settings, report, inWorker = true) {
    let worker = null;
    if (inWorker && typeof Worker === "function") try {
      // a worker from a text works from a disk too; the text is that of the modules that this page has loaded
      const modules = Object.entries(lab.sources).filter(([name]) => !/^(page|lab_)/.test(name));
      const text = `"use strict";${makeLab}\nconst lab = makeLab();\n${modules.map(([name, make]) =>
        `lab.define(${JSON.stringify(name)}, ${make});`).join("\n")}\nlab.use("worker").serve(lab.use);`;
      const address = URL.createObjectURL(new Blob([text], { type: "text/javascript" }));
      worker = new Worker(address);
      URL.revokeObjectURL(address);
    } catch { worker = null; }
    if (!worker) return work(lab.use(module).train, settings, report, 8);
    worker.onmessage = ({ data }) => report(data);
    worker.onerror = event => report({ error: event.message });
    worker.postMessage(["train", module, settings]);
    const send = order => changes => worker.postMessage([order, changes]);
    return { pause: send("pause"), go: send("go"), step: send("step"), set: send("set"), stop: () => worker.terminate() };
  }

  return { work, serve, launch };
});
