// The page: views side by side, the panel, the search, keys, and the hash that links to what is selected.

const KEYS = [
  ["/", "search"], ["↑ ↓ ← →", "go to a neighbour"], ["Enter", "open or close"], ["+  −", "open, close"],
  ["*  _", "open, close everything"], ["[  ]", "leaf through repeated modules"], ["Esc", "to the module around"],
  ["n  p", "next, previous finding or change"], ["f  0", "fit into the window"], ["i  o", "zoom in, out"], ["c", "colour by something else"],
  ["s  Shift s", "save the picture as SVG, as PNG"], ["?", "these keys"],
];

class Page {
  constructor(data) {
    this.data = data;
    this.ways = coloursFor(data);
    this.way = this.ways.find((way) => way.name === (data.diff ? "changes" : "operator"));
    this.isDark = matchMedia("(prefers-color-scheme: dark)");
    document.documentElement.dataset.theme = this.isDark.matches ? "dark" : "light";
    this.views = data.programs.map((program) => this.viewOf(program));
    this.active = this.views.at(-1); // what came of it is what most questions are about
    this.panel = new Panel(byId("panel"), data, {
      node: (node) => this.selectNode(node),
      module: (program, path) => this.selectModule(program, path),
      item: (item) => this.selectItem(item),
      step: (item, by) => this.step(item, by),
    });
    byId("title").textContent = data.programs.map((program) => program.name).join(" → ");
    this.search = new Search(this);
    this.makeTabs();
    this.makeColours();
    this.listen();
    for (const view of this.views) openLone(view.level);
    for (const view of this.views) view.resize();
    for (const view of this.views) view.fit();
    this.showTab("overview");
    this.showPath();
    this.readHash();
  }

  viewOf(program) {
    program.colours = this.data.colours;
    const view = new View(program, this.way, {
      select: (item) => this.selectItem(item, view),
      toggle: (item) => this.toggle(item),
      step: (item, by) => this.step(item, by),
    });
    const name = this.data.programs.length > 1 ? el("p", { className: "name", textContent: program.name }) : null;
    byId("views").append(el("div", { className: "view" }, ...[name, view.canvas, view.map.canvas].filter(Boolean)));
    view.canvas.addEventListener("focus", () => {
      this.active = view;
      this.showPath();
    });
    return view;
  }

  // ---- selecting

  view(program) {
    return this.views[program.index];
  }

  selectItem(item, view = item ? this.view(item.level.program) : this.active) {
    this.active = view;
    if (item) openTo(item);
    this.mark(view, item);
    if (!item) {
      this.node = null;
      this.panel.nothing();
    } else if (item.node) {
      this.selectNode(item.node, item);
      return;
    } else {
      this.node = null;
      view.reach(item);
      this.followItem(item);
      this.panel.item(item);
      this.say(`${titleOf(item)}, ${counted(item.size, "node")}, ${item.open ? "open" : "closed"}`);
      this.writeHash(`module=${encodeURIComponent(innerOf(item).path)}${view.program.index ? "&in=2" : ""}`);
    }
    this.showTab("selected", false);
    this.showPath();
  }

  // Select a node, and in the other program its partner. at: the item to mark, which may be an input of a module.
  selectNode(node, at = null) {
    const view = this.view(node.program);
    const item = at ?? node.item ?? node.users.find((user) => user.item)?.item ?? null;
    this.active = view;
    this.node = node;
    if (item) openTo(item);
    this.mark(view, item);
    if (item) view.reach(item);
    if (this.data.diff) this.follow(node);
    this.panel.node(node);
    this.showTab("selected", false);
    this.showPath();
    this.say(`${node.name}, ${node.target}, ${node.shape}`);
    this.writeHash(hashOf(node));
  }

  selectModule(program, path) {
    const levels = program.levels.filter((level) => level.path === path && level.owner);
    if (levels.length) this.selectLevel(levels[0]);
    else {
      const node = program.nodes.find((one) => one.item && moduleOf(one) === path);
      if (node) this.selectNode(node);
    }
  }

  selectLevel(level) {
    const { owner } = level;
    showMember(owner, level);
    this.selectItem(owner);
  }

  mark(view, item) {
    view.selected = item;
    view.draw();
  }

  // Select the partner of a node in the other program; without one go to where it would be, beside its neighbours'.
  follow(node) {
    const other = this.views[1 - node.program.index];
    const partner = node.partner?.item ?? null;
    const near = partner ?? [...node.used, ...node.users].find((one) => one.item && one.partner?.item)?.partner.item;
    if (near) openTo(near);
    this.mark(other, partner);
    if (near) other.reach(near);
  }

  // Select the module of the same path in the other program.
  followItem(item) {
    if (!this.data.diff) return;
    const other = this.views[1 - item.level.program.index];
    const path = innerOf(item).path;
    const level = other.program.levels.find((one) => one.path === path && one.owner);
    if (level) {
      showMember(level.owner, level);
      openTo(level.owner);
      other.reach(level.owner);
    }
    this.mark(other, level?.owner ?? null);
  }

  // ---- opening

  toggle(item) {
    const view = this.view(item.level.program);
    view.keep(item, () => setOpen(item, !item.open));
    this.alsoOther(item, (twin) => setOpen(twin, item.open));
    this.say(`${titleOf(item)} ${item.open ? "opened" : "closed"}`);
  }

  step(item, by) {
    const view = this.view(item.level.program);
    const count = item.members.length;
    view.keep(item, () => showMember(item, item.members[(item.member + by + count) % count]));
    this.selectItem(item);
  }

  // Do the same in the other program, where it has the same module.
  alsoOther(item, act) {
    if (!this.data.diff) return;
    const other = this.views[1 - item.level.program.index];
    const level = other.program.levels.find((one) => one.path === innerOf(item)?.path && one.owner);
    const twin = level?.owner ?? item.node?.partner?.item;
    if (twin) {
      act(twin);
      other.draw();
    }
  }

  openAll(isOpen) {
    for (const view of this.views) {
      const change = () => {
        for (const level of view.program.levels) {
          level.layout = null;
          for (const item of level.items) if (canOpen(item)) item.open = isOpen;
        }
        if (!isOpen) openLone(view.level);
      };
      if (view.selected) {
        view.keep(view.selected, change);
        continue;
      }
      change();
      view.fit();
    }
  }

  // ---- the bar at the top

  makeTabs() {
    const { programs, diff } = this.data;
    const wrong = programs.reduce((sum, program) => sum + program.findings.length, 0);
    const tabs = [["overview", "Overview"], ["selected", "Selected"]];
    tabs.push(["findings", wrong ? `Findings ${wrong}` : "Findings"]);
    if (diff) tabs.push(["changes", `Changes ${diff.changes.length + diff.notes.length}`]);
    this.tabs = new Map(tabs.map(([name, text]) => [name, el("button", {
      type: "button", role: "tab", id: `tab-${name}`, textContent: text, "aria-controls": "panel", onclick: () => this.showTab(name),
    })]));
    byId("tabs").append(...this.tabs.values());
    byId("tabs").addEventListener("keydown", (event) => {
      const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!by) return;
      const names = [...this.tabs.keys()];
      const next = names[(names.indexOf(this.tab) + by + names.length) % names.length];
      this.showTab(next);
      this.tabs.get(next).focus();
    });
  }

  showTab(name, isFilled = true) {
    this.tab = name;
    for (const [key, tab] of this.tabs) {
      tab.setAttribute("aria-selected", `${key === name}`);
      tab.tabIndex = key === name ? 0 : -1;
    }
    byId("panel").setAttribute("aria-labelledby", `tab-${name}`);
    if (!isFilled) return;
    if (name !== "selected") this.panel[name]();
    else if (this.node) this.panel.node(this.node);
    else if (this.active.selected) this.panel.item(this.active.selected);
    else this.panel.nothing();
  }

  // Breadcrumbs: the modules around what is selected.
  showPath() {
    const { program, selected } = this.active;
    const parts = [];
    for (let level = selected?.level; level?.owner; level = level.parent) parts.unshift(level);
    const crumb = (text, title, act) => el("button", { type: "button", textContent: text, title, onclick: act });
    byId("path").replaceChildren(
      crumb(program.root.type || "graph", "The whole graph", () => {
        this.selectItem(null);
        this.active.fit();
      }),
      ...parts.flatMap((level) => {
        const around = level.parent?.path ?? "";
        const text = around && level.path.startsWith(`${around}.`) ? level.path.slice(around.length + 1) : level.path;
        return [el("span", { "aria-hidden": "true", textContent: "›" }), crumb(text, level.path, () => this.selectLevel(level))];
      }),
    );
  }

  makeColours() {
    const select = byId("colour");
    select.append(...this.ways.map((way) => el("option", { value: way.name, textContent: way.name, selected: way === this.way })));
    select.addEventListener("change", () => this.colourBy(select.value));
    this.showLegend();
  }

  colourBy(name) {
    this.way = this.ways.find((way) => way.name === name);
    byId("colour").value = name;
    for (const view of this.views) {
      view.way = this.way;
      view.draw();
    }
    this.showLegend();
  }

  showLegend() {
    const rows = this.countsByColour().slice(0, 12);
    byId("legend").replaceChildren(...rows.map(([category, text]) => {
      const [fill, line] = this.way.colours(category).slice(inks().isDark ? 2 : 0);
      const patch = el("i", {});
      patch.style.background = fill;
      patch.style.borderColor = line;
      return el("span", {}, patch, `${category} `, el("b", { textContent: text }));
    }));
  }

  // How many nodes have each colour: of two programs in each, where that differs; of changes how many there are.
  countsByColour() {
    if (this.way.name === "changes") return [...this.data.diff.counts].map(([kind, count]) => [kind, count.toLocaleString("en")]);
    const counts = this.views.map((view) => countsOf(view.program.root, this.way));
    const rows = [...new Set(counts.flatMap((map) => [...map.keys()]))].filter((category) => category !== "")
      .map((category) => [category, counts.map((map) => map.get(category) ?? 0)]);
    rows.sort(([, a], [, b]) => Math.max(...b) - Math.max(...a));
    return rows.map(([category, all]) => [category, [...new Set(all)].map((count) => count.toLocaleString("en")).join(" → ")]);
  }

  setTheme(theme) {
    document.documentElement.dataset.theme = theme;
    knownInks = null;
    for (const view of this.views) view.draw();
    this.showLegend();
  }

  // The picture as it is opened and coloured now, as a file.
  async save(kind) {
    const { programs } = this.data;
    const title = programs.map((program) => program.name).join(" → ");
    const blob = kind === "png" ? await pngOf(this.views) : new Blob([svgOf(this.views, title)], { type: "image/svg+xml" });
    if (blob === null) return this.say("This browser can't hold a picture of that size");
    const name = programs.map((program) => program.name.replace(/\.pt2$/, "")).join("-").replace(/[^\p{L}\p{N}._-]+/gu, "_");
    saveAs(blob, `${[...name].slice(0, 60).join("")}.${kind}`); // no longer than files may be called
    return this.say(`Saved as ${kind.toUpperCase()}`);
  }

  say(text) {
    byId("says").textContent = text;
  }

  // ---- the hash

  writeHash(hash) {
    try {
      history.replaceState(null, "", `#${hash}`);
    } catch {
      // a frame of a notebook has no address
    }
  }

  readHash() {
    const wanted = new URLSearchParams(location.hash.slice(1));
    const program = this.data.programs[Number(wanted.get("in") ?? 1) - 1] ?? this.data.programs[0];
    const node = wanted.has("node") ? program.find(wanted.get("node")) : null;
    if (node) this.selectNode(node);
    else if (wanted.has("module")) this.selectModule(program, wanted.get("module"));
  }

  // ---- keys

  listen() {
    byId("expand").addEventListener("click", () => this.openAll(true));
    byId("collapse").addEventListener("click", () => this.openAll(false));
    byId("svg").addEventListener("click", () => this.save("svg"));
    byId("png").addEventListener("click", () => this.save("png"));
    byId("help").addEventListener("click", () => this.showKeys());
    byId("theme").addEventListener("click", () => this.setTheme(inks().isDark ? "light" : "dark"));
    this.isDark.addEventListener("change", () => this.setTheme(this.isDark.matches ? "dark" : "light"));
    window.addEventListener("hashchange", () => this.readHash());
    window.addEventListener("keydown", (event) => this.press(event));
    let theme = "";
    window.addEventListener("beforeprint", () => {
      theme = document.documentElement.dataset.theme;
      this.setTheme("light");
      for (const view of this.views) view.print();
    });
    window.addEventListener("afterprint", () => {
      this.setTheme(theme);
      for (const view of this.views) view.resize();
    });
    byId("keys").append(el("h2", { textContent: "Keys" }), tableOf(KEYS.map(([key, text]) => [key, text])));
    const split = byId("split");
    const widen = (width) => document.documentElement.style.setProperty("--side", `${Math.min(Math.max(width, 260), innerWidth * 0.6)}px`);
    split.addEventListener("pointerdown", (event) => split.setPointerCapture(event.pointerId));
    split.addEventListener("pointermove", (event) => event.buttons === 1 && widen(innerWidth - event.clientX));
    split.addEventListener("keydown", (event) => {
      const by = { ArrowLeft: 20, ArrowRight: -20 }[event.key];
      if (by) widen(byId("side").clientWidth + by);
    });
  }

  showKeys(isShown = byId("keys").hidden) {
    byId("keys").hidden = !isShown;
    byId("help").setAttribute("aria-expanded", `${isShown}`);
  }

  press(event) {
    const isTyping = event.target.matches("input, select");
    if (event.key === "Escape" && !byId("keys").hidden) return this.showKeys(false);
    if (isTyping || event.ctrlKey || event.metaKey || event.altKey) return undefined;
    const isCanvas = event.target === this.active.canvas || event.target === document.body;
    const item = this.active.selected;
    const act = {
      "/": () => this.search.focus(),
      "?": () => this.showKeys(),
      f: () => this.active.fit(true),
      0: () => this.active.fit(true),
      i: () => this.active.zoom(1.3),
      o: () => this.active.zoom(1 / 1.3),
      n: () => this.next(1),
      p: () => this.next(-1),
      c: () => this.colourBy(this.ways[(this.ways.indexOf(this.way) + 1) % this.ways.length].name),
      s: () => this.save("svg"),
      S: () => this.save("png"),
      "]": () => item?.members.length > 1 && this.step(item, 1),
      "[": () => item?.members.length > 1 && this.step(item, -1),
      "+": () => this.openOne(item, true),
      "=": () => this.openOne(item, true), // where + takes Shift
      "-": () => this.openOne(item, false),
      "*": () => this.openAll(true),
      _: () => this.openAll(false),
      ...(isCanvas ? {
        Enter: () => item && canOpen(item) && this.toggle(item),
        Escape: () => this.selectItem(item?.level.owner ?? null),
        ArrowDown: () => this.walk("down"),
        ArrowUp: () => this.walk("up"),
        ArrowLeft: () => this.walk("left"),
        ArrowRight: () => this.walk("right"),
      } : {}),
    }[event.key];
    if (!act) return undefined;
    event.preventDefault();
    return act();
  }

  openOne(item, isOpen) {
    if (item && canOpen(item) && item.open !== isOpen) this.toggle(item);
    else if (!isOpen && item?.level.owner) this.selectItem(item.level.owner);
  }

  // To the nearest box in a direction: down into what is open, and past the last one of a module out of it.
  walk(way, item = this.active.selected, isFrom = true) {
    if (!item) return this.selectItem(this.active.layout.boxes[0]?.item ?? null);
    if (way === "down" && isFrom && item.open) {
      return this.selectItem(layoutOf(innerOf(item) ?? levelsIn(item)[0]).boxes[0]?.item ?? null);
    }
    const { boxes, lines } = layoutOf(item.level);
    const own = boxes[item.index];
    const middle = (box) => box.x + box.w / 2;
    const isBeside = (box) => box !== own && box.y < own.y + own.h && own.y < box.y + box.h && (middle(box) < middle(own)) === (way === "left");
    const near = {
      down: () => lines.filter(({ source }) => source === own).map(({ target }) => target),
      up: () => lines.filter(({ target }) => target === own).map(({ source }) => source),
      left: () => boxes.filter(isBeside),
      right: () => boxes.filter(isBeside),
    }[way]();
    const [nearest] = near.sort((a, b) => Math.abs(middle(a) - middle(own)) - Math.abs(middle(b) - middle(own)));
    if (nearest) return this.selectItem(nearest.item);
    return item.level.owner && (way === "down" || way === "up") ? this.walk(way, item.level.owner, false) : undefined;
  }

  // The next finding or change.
  next(by) {
    const { diff, programs } = this.data;
    const nodes = diff ? diff.changes.map((change) => change.after ?? change.before)
      : programs.flatMap((program) => program.findings.map((finding) => finding.node));
    const known = nodes.filter((node) => node?.item);
    if (!known.length) return;
    const at = known.indexOf(this.node);
    this.selectNode(known[(at < 0 ? (by > 0 ? 0 : known.length - 1) : at + by + known.length) % known.length]);
  }
}

// ---- opening, without drawing

function setOpen(item, isOpen) {
  item.open = isOpen && canOpen(item);
  forget(item.level);
}

function showMember(item, level) {
  const at = item.members.indexOf(level);
  if (at >= 0 && at !== item.member) {
    item.member = at;
    forget(item.level);
  }
}

// Open all that an item is in.
function openTo(item) {
  for (let { level } = item; level.owner; { level } = level.owner) {
    showMember(level.owner, level);
    if (!level.owner.open) setOpen(level.owner, true);
  }
}

// Open a module that is all there is in a level, and so on inwards.
function openLone(level) {
  const inner = level.items.filter((item) => item.kind === "node" || canOpen(item));
  if (inner.length !== 1 || !canOpen(inner[0])) return;
  setOpen(inner[0], true);
  levelsIn(inner[0]).slice(0, 1).forEach(openLone);
}

function hashOf(node) {
  return `node=${encodeURIComponent(fullName(node))}${node.program.index ? "&in=2" : ""}`;
}

function byId(id) {
  return document.getElementById(id);
}

// ---- start

let page = null;

async function start() {
  try {
    page = new Page(readAll(await unpack(byId("data").textContent)));
    document.body.dataset.ready = `${Math.round(performance.now())}`; // milliseconds until it could be used
  } catch (error) {
    const text = `This page could not be shown: ${error.message}. It needs a browser of 2023 or later.`;
    document.body.prepend(el("p", { className: "notice", role: "alert", textContent: text }));
  }
}

start();
