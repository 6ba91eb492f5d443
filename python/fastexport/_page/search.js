// The search box: nodes by name, operator, path of the module and shape, and modules by path and class.

const MOST_HITS = 200;

class Search {
  constructor(page) {
    this.page = page;
    this.input = byId("search");
    this.at = 0;
    this.hits = [];
    this.input.addEventListener("input", () => this.run());
    this.input.addEventListener("keydown", (event) => this.press(event));
    this.input.addEventListener("focus", () => this.run());
    document.addEventListener("pointerdown", (event) => !event.target.closest(".search") && this.close());
  }

  // All that can be found, with the text that is searched; made when it is first asked for.
  get entries() {
    this.known ??= this.page.data.programs.flatMap((program) => [
      ...program.levels.filter((level) => level.owner && level.owner.kind !== "node" && level.owner.kind !== "run").map((level) => ({
        name: level.path, note: level.type, level, text: `${level.path} ${level.type}`.toLowerCase(), program,
      })),
      ...program.nodes.map((node) => ({
        name: node.weight ? node.path || node.name : node.name, note: `${shortName(node.target)} ${node.shape}`.trim(), node, program,
        text: `${fullName(node)} ${node.path} ${node.target} ${moduleOf(node)} ${node.shape}`.toLowerCase(),
      })),
    ]);
    return this.known;
  }

  focus() {
    this.input.focus();
    this.input.select();
  }

  // All words must be in an entry; first come names that begin so.
  run() {
    const words = this.input.value.toLowerCase().split(/\s+/).filter(Boolean);
    this.at = 0;
    if (!words.length) {
      this.hits = [];
      this.close();
    } else {
      const rank = ({ name }) => {
        const low = name.toLowerCase();
        return low === words[0] ? 0 : low.startsWith(words[0]) ? 1 : low.includes(words[0]) ? 2 : 3;
      };
      this.hits = this.entries.filter((entry) => words.every((word) => entry.text.includes(word)))
        .map((entry, i) => [rank(entry), i, entry]).sort((a, b) => a[0] - b[0] || a[1] - b[1]).map(([, , entry]) => entry);
      this.show();
    }
    for (const view of this.page.views) {
      view.hits = new Set(this.hits.filter((hit) => hit.program === view.program).map((hit) => hit.node?.item ?? hit.level?.owner).filter(Boolean));
      view.draw();
    }
  }

  show() {
    byId("found").hidden = false;
    this.input.setAttribute("aria-expanded", "true");
    const rest = this.hits.length > MOST_HITS ? `, the first ${MOST_HITS} here` : "";
    byId("hit-count").textContent = this.hits.length ? `${this.hits.length.toLocaleString("en")} found${rest}` : "Nothing found";
    const several = this.page.data.programs.length > 1;
    byId("hits").replaceChildren(...this.hits.slice(0, MOST_HITS).map((hit, i) => el("li", {
      role: "option", id: `hit-${i}`, onclick: () => this.choose(i), "aria-selected": `${i === this.at}`,
    }, el("span", { className: hit.level ? "hit module" : "hit", textContent: hit.name }),
    el("span", { className: "note", textContent: several ? `${hit.program.name} · ${hit.note}` : hit.note }))));
    this.markCurrent();
  }

  markCurrent() {
    [...byId("hits").children].forEach((row, i) => row.setAttribute("aria-selected", `${i === this.at}`));
    byId(`hit-${this.at}`)?.scrollIntoView({ block: "nearest" });
    this.input.setAttribute("aria-activedescendant", this.hits.length ? `hit-${this.at}` : "");
  }

  press(event) {
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const count = Math.min(this.hits.length, MOST_HITS);
    if (by && count) {
      event.preventDefault();
      this.at = (this.at + by + count) % count;
      this.markCurrent();
    } else if (event.key === "Enter" && count) {
      this.choose(this.at);
    } else if (event.key === "Escape") {
      this.input.value = "";
      this.run();
      this.page.active.canvas.focus();
    }
  }

  choose(i) {
    const hit = this.hits[i];
    if (hit.node) this.page.selectNode(hit.node);
    else this.page.selectLevel(hit.level);
    this.close();
    this.page.active.canvas.focus();
  }

  close() {
    byId("found").hidden = true;
    this.input.setAttribute("aria-expanded", "false");
  }
}
