"use strict";
// All that a page with a lab loads at first: it brings the rest when a lab is first touched, or named by a link such as
// #lab-maze:slip=0.4&run. Everything is a classic script, because modules cannot be loaded from a disk: a script
// registers its module by `lab.define`, and a module gets the others by `use`.

/** A register of modules: each is a function that is run when it is first used, and whose text a worker can be given. */
function makeLab() {
  const sources = {}, made = {};
  const use = name => made[name] ??= sources[name](use);
  return { sources, use, define(name, make) { sources[name] = make; } };
}

const lab = makeLab();

if (typeof document !== "undefined") {
  const folder = document.currentScript.src.replace(/[^/]*$/, ""), loaded = {};
  const load = lab.load = (name, kind = "script", address = { src: `${folder}${name}.js` }) => loaded[name] ??= new Promise((done, failed) => {
    const node = Object.assign(document.createElement(kind), address);
    node.onload = done;
    node.onerror = () => { loaded[name] = null; failed(new Error(`${name} could not be loaded`)); };
    document.head.append(node);
  });
  /** A module and what it uses, as its text says. */
  const bring = async name => {
    await load(name);
    await Promise.all([...String(lab.sources[name]).matchAll(/ use\("(\w+)"/g)].map(([, used]) => bring(used)));
  };
  const breathe = () => new Promise(done => requestAnimationFrame(() => setTimeout(done)));  // between pieces the page is shown
  const build = root => root.built ??= (async () => {
    root.ariaBusy = true;
    await load("sheet", "link", { rel: "stylesheet", href: `${folder}lab.css` });
    await bring(`lab_${root.dataset.lab}`);
    const { build } = lab.use(`lab_${root.dataset.lab}`);
    await breathe();
    await build(root);
    lab.use("page").share(root);
    await breathe();
    return true;
  })().catch(error => {
    root.built = root.ariaBusy = null;
    root.querySelector(".lab-status").textContent = `This lab did not start: ${error.message}. Press again to try once more.`;
  });
  const open = async (root, first, then) => {
    if (!await build(root)) return;
    const node = root.querySelector(first) ?? root.querySelector(".lab-run");
    node.focus({ preventScroll: Boolean(then) });
    await breathe();
    root.ariaBusy = null;
    then?.(node);
  };
  const follow = ({ hash }) => {
    const [, id, settings] = /^#(lab-[\w-]+):(.*)/.exec(hash) ?? [], root = document.getElementById(id);
    root?.scrollIntoView();
    if (root) open(root, ".lab-run", () => lab.use("page").follow(root, new URLSearchParams(settings)));
  };
  addEventListener("hashchange", () => follow(location));
  addEventListener("click", ({ target }) => {
    const root = target.closest("[data-lab]"), link = target.closest("a");
    if (link && link.hash === location.hash) follow(link);
    if (target.matches(".lab-bar .lab-run")) open(root, ".lab-run", run => run.click());
    if (target.matches(".lab-open")) open(root, "[data-first]");
  });
  follow(location);
}
