// Search over the sections of the book: `bookSearch.find(query)` ranks them, `bookSearch.attach(form, place)` shows them.
// MiniSearch counts (BM25 over the fields of a section); what follows says which words count as the same, and which
// sections come first. The sections are written by _ext/book_search.py when the book is built.
const bookSearch = (() => {
  "use strict";

  const GREEK = {
    α: "alpha", β: "beta", γ: "gamma", δ: "delta", ε: "epsilon", ϵ: "epsilon", ζ: "zeta", η: "eta", θ: "theta", κ: "kappa",
    λ: "lambda", μ: "mu", ν: "nu", ξ: "xi", π: "pi", ρ: "rho", σ: "sigma", τ: "tau", φ: "phi", ϕ: "phi", χ: "chi", ψ: "psi",
    ω: "omega", "∇": "gradient", "∗": "*",
  };
  const EMPTY = new Set(("a about am an and are as at be between book by can chapter could did do does explain for from has " +
    "have how i in into is it its learn me mean means my of or should so than that the then there this to use was we what when " +
    "where which why will with work works would you your anyone apply applied but during happen happens issue please question really " +
    "sometimes still tell usage used using very we've while " +
    // what titles of threads say besides their subject
    "add added adding always any bug expected feature fix fixed found get implement implementation intended instead just need normal " +
    "problem questions rather request seem seems").split(" "));
  // Written in several ways in the field and in the book; where one word stands for several, for all of them.
  const SAME = {__proto__: null,  // "constructor" is a word, too
    rewards: "reward", behaviour: "behavior", tokeniser: "tokenizer", lm: "llm", hyperparameters: "setting", derivation: "derive",
    optimise: "optimize", normalise: "normalize", normalising: "normalize", nn: "network", nets: "network",
    timeout: "limit", timelimit: "limit", limits: "limit", ppo2: "ppo", dones: "done", logs: "log", interpret: "read", bigger: "grow", lose: "forget", loses: "forget",
    catastrophically: "collapse", catastrophic: "collapse", lots: "lot",
    completion: "answer", completions: "answer", response: "answer", responses: "answer", oom: "memory", vram: "memory", prob: "probability",
    probs: "probability", logp: ["log", "probability"], logps: ["log", "probability"], logprob: ["log", "probability"], logprobs: ["log", "probability"],
    finetune: ["fine", "tune"], finetuning: ["fine", "tune"], lr: ["learn", "rate"], rm: ["reward", "model"], eps: "epsilon",
    agentic: ["tool", "turn"], round: "turn", rounds: "turn",
  };

  const written = text => text.normalize("NFKD").toLowerCase().replace(/[\u0300-\u036f\u200b]/g, "").replace(/['’]s\b/g, "")
    .replace(/[α-ωϕϵ∇]/g, letter => ` ${GREEK[letter] ?? letter} `);
  const tokenize = text => written(text).split(/[^\p{L}\p{N}_]+/u).filter(Boolean)
    .flatMap(word => /._./.test(word) ? [word, ...word.split("_").filter(Boolean)] : [word]);
  // A symbol or a short name stands for its words as well.
  const ALSO = {__proto__: null,
    gamma: "discount", mdp: "markov decision process", td: "temporal difference", mc: "monte carlo", kl: "divergence",
    gae: "generalized advantage estimation", ppo: "proximal policy optimization", trpo: "trust region", dqn: "deep q learning",
    sft: "supervised fine tuning", is: "importance sampling", alpha: "step size", rho: "ratio", theta: "parameters",
  };
  // One form for a word, its plural and its kin: iterations, iterating, iterate. Rough, and the same for text and question.
  const stem = word => {
    if (SAME[word]) return SAME[word];
    if (word.length < 4 || word.includes("_")) return word;
    const one = word.replace(/(?<=[a-z]{2})ies$/, "y").replace(/(?<=[^su])s$/, "");
    const root = one.replace(/(?<=[a-z]{4})(ation|ating|ated|ate|ator|ing|ed|ion)$/, "");
    return root === one ? one.replace(/(?<=[a-z]{4})e$/, "") : root.replace(/([bdgmnprt])\1$/, "$1").replace(/(?<=[a-z]{4})e$/, "");
  };
  const processTerm = word => EMPTY.has(word) ? null : stem(word);
  const wordsOf = text => tokenize(text).flatMap(processTerm).filter(Boolean);

  // Fields of a section and what a word counts in each: its title, the page's title where it opens the page, words set in bold or
  // italics (where the book names a thing for the first time), the text.
  const FIELDS = {title: 4, page: 8, terms: 4, text: 1};
  const MANY = 12, ANSWER = 160;  // how much a question that is asked in a sentence counts for the page of questions

  let index, sections, homes;

  // How much words tell: those of few sections much, those of many little.
  const rarity = word => Math.log(1 + sections.length / (1 + Math.max(0, ...[...index._index.get(word)?.values() ?? []].map(found => found.size))));
  const told = words => [...new Set(words)].reduce((sum, word) => sum + rarity(word), 0);

  // ``pages``: a page's file name to its title with its number, its short name, and its sections.
  function read(pages) {
    sections = Object.entries(pages).flatMap(([page, [chapter, name, rows]]) =>
      rows.map(([anchor, number, title, terms, text, weight]) =>
        ({page, anchor, number, title, terms, text, weight, answers: page.endsWith("_questions") && /[?)]$/.test(title), chapter, name, opens: !anchor})));
    sections.forEach((section, id) => { section.id = id; });
    index = new MiniSearch({fields: Object.keys(FIELDS), tokenize, processTerm, extractField: (section, field) =>
      field === "page" ? (section.opens ? section.chapter + " " + section.name : "") : section[field]});
    index.addAll(sections);
    // A term's home: the lesson's section that numbers an equation of that name, else the first, after the introduction, that sets it in bold or italics.
    homes = new Map();
    for (const sign of ["=", ""])
      for (const section of sections.filter(section => section.weight === 1 && section.number.includes(".") && !/^1\./.test(section.number)))
        for (const term of section.terms.split(" · ").filter(term => term.startsWith("=") === (sign === "="))) {
          const plain = wordsOf(term).join(" ");
          if (plain && !homes.has(plain)) homes.set(plain, section);
        }
    return sections.length;
  }

  function find(query, many = MANY) {
    const asked = wordsOf(query);
    if (!asked.length) return [];
    // Who asks in a sentence wants an answer; who types a word, its place; three words may be either.
    const question = asked.length > 3 || /\?\s*$/.test(written(query)), answer = question ? ANSWER : asked.length > 2 ? ANSWER / 16 : 1;
    const options = {
      boost: question ? {...FIELDS, title: 6, page: 2} : FIELDS,
      prefix: (term, place, terms) => term.length > 2 && place === terms.length - 1,
      fuzzy: term => term.length > 5 ? 0.2 : false,
      weights: {prefix: 0.25, fuzzy: 0.1},
      boostDocument: id => sections[id].weight * (sections[id].answers ? answer : 1),
      bm25: {k: 1.2, b: 0.6, d: 0.2},
    };
    const also = asked.length === 1 && ALSO[asked[0]];
    const found = index.search(also ? {combineWith: "OR", queries: [query, {queries: [also], combineWith: "AND"}]} : query, {...options, combineWith: "OR"});
    const phrase = ` ${asked.join(" ")} `, several = asked.length > 3;
    const plain = text => ` ${wordsOf(text).join(" ")} `;
    // BM25 does not know that words stand together, and hardly that all of them occur.
    const raise = ({id, score, queryTerms}) => {
      const section = sections[id], title = plain(section.title);
      if (!also) score *= (told(queryTerms) / told(asked)) ** 2;
      if (title === phrase || section.opens && plain(section.name) === phrase) score *= 3;
      else if (title.startsWith(phrase)) score *= 2.2;
      else if (title.includes(phrase)) score *= 1.5;
      if (homes.get(asked.join(" ")) === section) score *= 2.2;
      if (/[_.]|[a-z][A-Z]/.test(query) && section.anchor.endsWith("." + query.trim())) score *= 30;        // a name of the library, as it is written
      if (several && (plain(section.terms).includes(phrase) || plain(section.text).includes(phrase))) score *= 1.3;
      return {section, score};
    };
    return found.slice(0, 60).map(raise).sort((one, other) => other.score - one.score).slice(0, many).map(({section}) => section);
  }

  // ---- what the reader sees

  // The stretch of the text with the most of the words asked for, as [text, is it one of them] pairs.
  function excerpt(section, query, length = 180) {
    const asked = wordsOf(query), text = section.text;
    const hits = [...text.matchAll(/[\p{L}\p{N}_]+/gu)].filter(found => {
      const here = wordsOf(found[0]);
      return here.length && here.every(word => asked.includes(word) || word.length > 3 && asked.at(-1).length > 2 && word.startsWith(asked.at(-1)));
    });
    let from = 0, most = 0;
    for (const {index: start} of hits) {
      const inside = new Set(hits.filter(hit => hit.index >= start && hit.index < start + length - 30).map(hit => stem(hit[0].toLowerCase()))).size;
      if (inside > most) [from, most] = [start, inside];
    }
    const sentence = text.lastIndexOf(". ", from);
    from = from - sentence < 90 && sentence >= 0 ? sentence + 2 : from < 90 ? 0 : text.indexOf(" ", from - 40) + 1;
    const end = text.length <= from + length ? text.length : text.lastIndexOf(" ", from + length);
    const pieces = [];
    let at = from;
    for (const hit of hits) {
      if (hit.index < at || hit.index + hit[0].length > end) continue;
      pieces.push([text.slice(at, hit.index), false], [hit[0], true]);
      at = hit.index + hit[0].length;
    }
    pieces.push([text.slice(at, end) + (end < text.length ? " …" : ""), false]);
    if (from > 0 && from !== sentence + 2) pieces.unshift(["… ", false]);
    return pieces;
  }

  function item(section, query, root) {
    const entry = document.createElement("li"), link = document.createElement("a"), place = document.createElement("span"), text = document.createElement("span");
    link.href = `${root}${section.page}.html${section.anchor && "#" + section.anchor}`;
    link.textContent = (section.number && section.number + " ") + section.title;
    place.className = "book-results__place";
    place.textContent = section.opens ? "" : section.chapter;
    text.className = "book-results__text";
    for (const [piece, hit] of excerpt(section, query)) {
      const part = hit ? document.createElement("mark") : document.createTextNode("");
      part.textContent = piece;
      text.append(part);
    }
    entry.append(link, place, text);
    return entry;
  }

  // Results under a form's field, while the reader types; the arrow keys go through them.
  function attach(form, place) {
    const field = form.querySelector("input"), root = document.documentElement.dataset.content_root ?? "./";
    const status = document.createElement("p"), list = document.createElement("ol");
    status.setAttribute("role", "status");
    status.className = "book-results__count";
    list.className = "book-results__list";
    place.replaceChildren(status, list);
    const show = () => {
      const query = field.value.trim(), found = find(query);
      list.replaceChildren(...found.map(section => item(section, query, root)));
      status.textContent = !query ? "" : found.length === 1 ? "1 place" : found.length ? `${found.length}${found.length === MANY ? " best" : ""} places`
        : "Nothing found. Try one word of it, or the index of equations.";
      list.scrollTop = 0;
    };
    let waiting = 0;
    const now = () => { clearTimeout(waiting); waiting = 0; show(); };
    field.addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(now, 60); });
    form.addEventListener("keydown", event => {
      if (waiting && event.key.startsWith("Arrow")) now();                 // the list must not change under the reader's hand
      const links = [...list.querySelectorAll("a")], here = links.indexOf(document.activeElement);
      if (event.key === "ArrowDown" && here < links.length - 1) links[here + 1].focus();
      else if (event.key === "ArrowUp" && here >= 0) (links[here - 1] ?? field).focus();
      else return;
      event.preventDefault();
    });
    show();
  }

  return {read, find, excerpt, attach, sections: () => sections};
})();
