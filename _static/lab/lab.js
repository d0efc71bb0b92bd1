"use strict";
// The labs: what computes in the page. This file is the only one that a page loads at first; it finds the labs and
// brings the rest when one of them is first touched. Everything is a classic script, because modules cannot be loaded
// from a disk. A script registers its modules by `lab.define`, and a module gets the others by `use`.

/** A register of modules: each is a function that is run when it is first used, and whose text a worker can be given. */
function makeLab() {
  const sources = {}, made = {};
  const use = name => made[name] ??= sources[name](use);
  return { sources, use, define(name, make) { sources[name] = make; } };
}

const lab = makeLab();

/** What each lab needs, in order: the engine's files are named after the library's modules. */
lab.needs = {
  maze: ["random", "maze", "tabular", "page", "maze_picture", "lab_maze"],
  cartpole: ["random", "network", "returns", "cartpole", "rollout", "policy_gradient", "dqn", "ppo", "trpo",
    "worker", "page", "lab_cartpole"],
  language: ["random", "network", "returns", "text_tasks", "reward_model", "transformer", "grpo", "worker", "page",
    "lab_language"],
  people: ["random", "reward_model", "page", "lab_people"],
  agent: ["random", "network", "maze", "tabular", "tabular_policy", "page", "maze_picture", "walks", "lab_walks", "lab_agent"],
};

/** Find the labs of a page; each loads its code at the first touch, and is then built by the module of its name. */
lab.start = function (document, folder) {
  const loaded = {};
  const load = lab.load = (name, kind = "js") => loaded[name + kind] ??= new Promise((done, failed) => {
    const node = kind === "js" ? Object.assign(document.createElement("script"), { src: `${folder}${name}.js` })
      : Object.assign(document.createElement("link"), { rel: "stylesheet", href: `${folder}${name}.css` });
    node.onload = done;
    node.onerror = () => { loaded[name + kind] = undefined; failed(new Error(`${name}.${kind} could not be loaded`)); };
    document.head.append(node);
  });
  for (const root of document.querySelectorAll("[data-lab]")) {
    const breathe = () => new Promise(done => requestAnimationFrame(() => setTimeout(done)));  // between pieces the page is shown
    let built;
    const build = () => built ??= (async () => {
      root.setAttribute("aria-busy", "true");
      await load("lab", "css");
      for (const name of lab.needs[root.dataset.lab]) await load(name);
      const made = lab.use(`lab_${root.dataset.lab}`);
      await breathe();
      await made.build(root);
      await breathe();
    })().catch(error => {
      built = undefined;
      root.removeAttribute("aria-busy");
      root.querySelector(".lab-status").textContent = `This lab did not start: ${error.message}. Press again to try once more.`;
    });
    const open = async (first, then) => {
      await build();
      if (!built) return;
      const node = root.querySelector(first) ?? root.querySelector(".lab-run");
      node.focus({ preventScroll: Boolean(then) });
      await breathe();
      root.removeAttribute("aria-busy");
      then?.(node);
    };
    root.querySelector(".lab-run").onclick = () => open(".lab-run", run => run.click());
    root.querySelector(".lab-open").onclick = () => open("[data-first]");
    root.dataset.state = "stopped";
  }
};

if (typeof document !== "undefined") {
  const folder = document.currentScript.src.replace(/[^/]*$/, "");
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", () => lab.start(document, folder));
  else lab.start(document, folder);
}
