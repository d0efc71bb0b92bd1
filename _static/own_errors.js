// Guess minus truth, as a small chart: at a lesson's foot for its own guesses, on the last page for those of the whole book.
// A guess is [value, what was said, what is true, difference as a share of the axis, or whether the choice was right].
const bookErrors = (guesses, page) => {
  const all = page.startsWith("appendix_what_is_next"), pages = Object.keys(guesses).filter(name => all || name === page).sort();
  const rows = pages.flatMap(name => Object.entries(guesses[name]).filter(([, found]) => found).map(([question, found]) =>
    [all ? `${+name.slice(0, 2)}. ${question} ` : question + " ", ...found]));
  document.querySelector(".own-errors")?.remove();
  if (!rows.length) return;
  const make = (kind, text = "") => Object.assign(document.createElement(kind), {textContent: text});
  const box = make("section"), offs = rows.map(row => row[4]), shares = offs.filter(off => typeof off === "number");
  const mean = Math.round(100 * shares.reduce((sum, off) => sum + Math.abs(off), 0) / shares.length);
  const chosen = offs.length - shares.length, right = offs.filter(off => off === true).length;
  box.className = "own-errors";
  box.innerHTML = `<h2>Your own errors</h2><p>${shares.length ? `On average your marks lie ${mean} % of the axis from the truth. ` : ""}${
    chosen ? `Right choices: ${right} of ${chosen}. ` : ""}Kept in this browser only.</p><table><thead><tr><th>Question</th><th>Guess minus truth</th></tr></thead><tbody></tbody></table>`;
  for (const [question, , said, truth, off] of rows) {
    const row = box.querySelector("tbody").insertRow(), asked = row.appendChild(make("th", question)), cell = row.insertCell(), bar = make("span");
    asked.scope = "row";
    asked.append(make("small", `You: ${said}. Truth: ${truth}.`));
    if (typeof off === "number") bar.style.cssText = `left: ${50 + 50 * Math.min(off, 0)}%; width: ${50 * Math.abs(off)}%`;
    cell.append(bar, make("small", typeof off === "boolean" ? (off ? "right" : "wrong") : `${off < 0 ? "−" : "+"}${Math.round(100 * Math.abs(off))} %`));
  }
  document.querySelector("article").append(box);
};
