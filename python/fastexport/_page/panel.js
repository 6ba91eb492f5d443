// The panel: all that is known of what is selected, of the programs, of findings and of changes. Whatever comes from a
// file gets into the page as text of an element, never as markup.

const MOST_ROWS = 300;
const SHORT = 16; // characters of a fact that stays in one line

// An element with properties, and children: elements or texts.
function el(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("aria-") || name === "role") element.setAttribute(name, value);
    else element[name] = value;
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}

function section(title, ...children) {
  return el("section", {}, el("h3", { textContent: title }), ...children);
}

function counted(count, what) {
  return `${count.toLocaleString("en")} ${what}${count === 1 ? "" : "s"}`;
}

// Rows of a list, and how many were left out.
function listOf(rows, make, className = "") {
  const list = el("ul", { className }, ...rows.slice(0, MOST_ROWS).map((row) => el("li", {}, make(row))));
  if (rows.length > MOST_ROWS) list.append(el("li", { className: "note", textContent: `+${(rows.length - MOST_ROWS).toLocaleString("en")} more` }));
  return list;
}

function tableOf(rows) {
  return el("table", {}, el("tbody", {}, ...rows.map(([name, ...value]) =>
    el("tr", {}, el("th", { scope: "row" }, name), el("td", {}, ...value)))));
}

class Panel {
  // on: node(node), module(program, path), item(item), step(item, by)
  constructor(root, data, on) {
    this.root = root;
    this.data = data;
    this.on = on;
  }

  show(...children) {
    this.root.replaceChildren(...children.filter((child) => child !== null));
    this.root.scrollTop = 0;
  }

  // ---- links

  link(node, text = node.name) {
    const note = node.shape || node.target;
    const link = el("a", { href: `#${hashOf(node)}`, textContent: text, title: note ? `${node.name}: ${note}` : node.name });
    link.addEventListener("click", (event) => {
      event.preventDefault();
      this.on.node(node);
    });
    return link;
  }

  button(text, act) {
    const button = el("button", { type: "button", className: "link", textContent: text });
    button.addEventListener("click", act);
    return button;
  }

  nodeRow(node, before = "") {
    return el("span", { className: "row" }, before || null, this.link(node), el("span", { className: "note", textContent: node.shape }));
  }

  // ---- what is selected

  nothing() {
    this.show(el("p", { className: "empty", textContent: "Select a node to see its arguments, shapes and source." }));
  }

  node(node) {
    const { difference, change } = node;
    this.show(
      el("h2", { textContent: node.name }),
      el("p", { className: "badges" },
        el("span", { className: "badge", textContent: node.weight || node.op }),
        node.status ? el("span", { className: `badge ${node.status.replace(" ", "-")}`, textContent: node.status }) : null,
        change && change !== "same" ? el("span", { className: `badge ${change}`, textContent: change }) : null),
      el("p", { className: "target" }, el("code", { textContent: node.weight ? node.path : node.target })),
      this.findingsOf(node.findings),
      difference ? section("What has changed", ...this.changeOf(difference)) : null,
      this.valueOf(node),
      this.fatesOf(node),
      this.argumentsOf(node),
      node.op === "output" ? null : this.usersOf(node),
      this.sourceOf(node),
      this.modulesOf(node),
      this.partnerOf(node),
      this.metaOf(node),
    );
  }

  usersOf(node) {
    const { length } = node.users;
    return section(counted(length, "user"), length ? listOf(node.users, (user) => this.nodeRow(user))
      : el("p", { className: "note", textContent: "nothing uses it" }));
  }

  // What an output gives back; of another node what becomes of it in the end, or of what it stands for.
  fatesOf(node) {
    if (node.op === "output") return section(resultsText(node.results), this.resultsOf(node));
    const place = ({ number, output }) => (number && output.returned > 1 ? ` of ${output.returned}` : "");
    const rows = [
      ...node.fates.map((result) => el("span", {}, this.fate(result), place(result))),
      ...node.becomes.map((result) => this.result(result, result.group === "mutation" ? "becomes" : "gradient:")),
    ];
    return rows.length ? section("In the end", listOf(rows, (row) => row)) : null;
  }

  // What becomes of a result: "returned 2", "becomes buffer cache".
  fate({ fate, target, input, number, output }) {
    if (number && output.returned > 1) return `${fate} ${number}`;
    if (!target) return fate;
    return el("span", {}, `${fate} `, input ? this.link(input, target) : target);
  }

  result({ node, value }, before = "") {
    if (node) return this.nodeRow(node, before);
    return el("span", { className: "row" }, before || null, el("code", { textContent: value }));
  }

  resultsOf({ results }) {
    const rows = results.slice(0, MOST_ROWS).map((result) => [this.fate(result), this.result(result)]);
    if (results.length > MOST_ROWS) rows.push(["", `+${(results.length - MOST_ROWS).toLocaleString("en")} more`]);
    return rows.length ? tableOf(rows) : el("p", { className: "note", textContent: "nothing is returned" });
  }

  valueOf(node) {
    if (!node.shape && !node.value) return null;
    const facts = node.value ? [el("p", { className: "note", textContent: node.value })] : [];
    return section("Value", el("p", { className: "shape" }, el("code", { textContent: node.shape })), ...facts);
  }

  argumentsOf(node) {
    const pairs = pairsOf(node.args);
    if (!pairs.length) return null;
    const table = tableOf(pairs.map(([name, text]) => [name, ...this.argument(node, text)]));
    if (node.op !== "output") return section("Arguments", table);
    return el("details", {}, el("summary", { textContent: "How they are nested" }), table); // which `fatesOf` has listed
  }

  // The text of an argument with links to the nodes in it; behind a single one its shape.
  argument(node, text) {
    const all = text.split("\x02");
    const parts = all.slice(0, 2 * MOST_ROWS).map((part, i) => {
      if (i % 2 === 0) return part;
      return this.link(node.program.nodes[node.index - Number(part)]);
    }).filter((part) => part !== "");
    if (all.length > 2 * MOST_ROWS) parts.push(`, +${((all.length - 1) / 2 - MOST_ROWS).toLocaleString("en")} more`);
    if (parts.length !== 1 || typeof parts[0] === "string") return [el("code", {}, ...parts)];
    const used = node.program.nodes[node.index - Number(text.split("\x02")[1])];
    const note = used.weight ? `${used.path} ${used.shape}` : used.shape;
    return [el("span", { className: "row" }, parts[0], el("span", { className: "note", textContent: note }))];
  }

  // The line of the model that made the node: the innermost call outside of torch; and behind it all calls.
  sourceOf(node) {
    if (!node.trace?.length) return null;
    const frames = [];
    for (let i = 0; i < node.trace.length; i += 4) {
      const [file, line, name, code] = node.trace.slice(i, i + 4);
      frames.push({ file: node.texts[file], line, name: node.texts[name], code: node.texts[code] });
    }
    const own = frames.findLast(({ file }) => !/(^|[/\\])torch[/\\]/.test(file)) ?? frames.at(-1);
    const row = (frame) => el("li", { className: frame === own ? "frame own" : "frame" },
      el("p", { className: "place", title: frame.file },
        el("span", { textContent: `${frame.file.split(/[/\\]/).at(-1)}:${frame.line}` }),
        frame.name ? el("span", { className: "note", textContent: ` in ${frame.name}` }) : null),
      frame.code ? el("pre", {}, el("code", { textContent: frame.code })) : null);
    return section("Source", el("ol", { className: "frames" }, row(own)), frames.length > 1
      ? el("details", {}, el("summary", { textContent: `${frames.length} calls, the innermost last` }), el("ol", { className: "frames" }, ...frames.map(row)))
      : null);
  }

  modulesOf(node) {
    const pairs = pairsOf(node.stack).filter(([path]) => path);
    return pairs.length ? section("Modules", listOf(pairs, ([path, kind]) =>
      el("span", { className: "row" }, this.button(path, () => this.on.module(node.program, path)), el("span", { className: "note", textContent: kind.split(".").at(-1) })))) : null;
  }

  metaOf(node) {
    const pairs = pairsOf(node.meta);
    if (!pairs.length) return null;
    return el("details", {}, el("summary", { textContent: `Meta: ${pairs.map(([key]) => key).join(", ")}` }),
      tableOf(pairs.map(([key, text]) => [key, el("code", { textContent: text })])));
  }

  partnerOf(node) {
    if (!this.data.diff) return null;
    const other = this.data.programs[1 - node.program.index];
    return section(`In ${other.name}`, node.partner ? el("p", {}, this.nodeRow(node.partner)) : el("p", { className: "note", textContent: "there is none like it" }));
  }

  // A module, block, run, or input or output of a module.
  item(item) {
    const level = innerOf(item);
    if (!level) return this.node(item.node);
    const count = item.members.length;
    return this.show(
      el("h2", { textContent: count > 1 ? titleOf(item) : level.path || titleOf(item) }),
      el("p", { className: "badges" }, el("span", { className: "badge", textContent: item.kind === "block" ? `repeated module, ${rowOf(item)}` : item.kind }),
        item.type ? el("span", { className: "badge", textContent: item.type }) : null),
      count > 1 ? this.stepper(item, level) : null,
      tableOf([[count > 1 ? "nodes of all" : "nodes", item.size.toLocaleString("en")], ["in", `${level.inputs.length}`], ["out", `${level.outputs.length}`]]),
      this.countsOf(level),
      section("Inside", listOf(level.items.filter((one) => !one.level.inputs.includes(one) && !one.level.outputs.includes(one)), (one) => this.itemRow(one))),
    );
  }

  stepper(item, level) {
    return el("p", { className: "stepper" },
      el("button", { type: "button", textContent: "‹", "aria-label": "The one before", onclick: () => this.on.step(item, -1) }),
      el("span", {}, el("b", { textContent: level.path.split(".").slice(-2).join(".") }), ` ${item.member + 1} of ${item.members.length}`),
      el("button", { type: "button", textContent: "›", "aria-label": "The next", onclick: () => this.on.step(item, 1) }));
  }

  itemRow(item) {
    const note = item.kind === "node" ? item.text : item.type || counted(item.size, "node");
    const name = item.kind === "node" ? item.name : titleOf(item);
    return el("span", { className: "row" }, this.button(name, () => this.on.item(item)), el("span", { className: "note", textContent: note }));
  }

  countsOf(level) {
    const counts = new Map();
    const add = (one) => {
      for (const item of one.items) {
        if (item.kind === "node") counts.set(item.type, (counts.get(item.type) ?? 0) + 1);
        levelsIn(item).forEach(add);
      }
    };
    add(level);
    return counts.size ? section("Calls", bars(counts)) : null;
  }

  // ---- the whole

  overview() {
    const { programs } = this.data;
    const isPair = programs.length > 1;
    this.show(
      el("h2", { textContent: isPair ? "Both programs" : programs[0].name }),
      this.factsOf(programs),
      section("Calls", bars(...programs.map(callsOf))),
      ...programs.flatMap((program) => [isPair ? el("h2", { textContent: program.name }) : null, ...this.endsOf(program)]),
    );
  }

  // The facts of the programs, a column each; what differs is marked.
  factsOf(programs) {
    if (programs.length === 1) return tableOf(programs[0].facts);
    const tables = programs.map((program) => new Map(program.facts));
    const rows = [...new Set(tables.flatMap((table) => [...table.keys()]))].map((key) => [key, ...tables.map((table) => table.get(key) ?? "")]);
    const cell = (tag, value) => el(tag, { className: value.length <= SHORT ? "short" : "", textContent: value });
    const cells = (tag, [name, ...values]) => [el("th", { scope: "row", textContent: name }), ...values.map((value) => cell(tag, value))];
    return el("table", { className: "pair" },
      el("thead", {}, el("tr", {}, ...cells("th", ["", ...programs.map((program) => program.name)]))),
      el("tbody", {}, ...rows.map((row) => el("tr", { className: row[1] === row[2] ? "" : "differs" }, ...cells("td", row)))));
  }

  // What goes in and comes out, and the weights.
  endsOf(program) {
    const weights = program.nodes.filter((node) => node.weight);
    const output = program.root.outputs[0]?.node;
    return [
      section("Inputs", listOf(program.root.inputs, (item) => this.nodeRow(item.node))),
      output ? section(`Outputs: ${resultsText(output.results)}`, this.resultsOf(output)) : null,
      weights.length ? el("details", {}, el("summary", { textContent: counted(weights.length, "weight") }),
        listOf(weights, (node) => el("span", { className: "row" }, this.link(node, node.path || node.name), el("span", { className: "note", textContent: node.shape })))) : null,
    ];
  }

  // ---- findings

  findingsOf(findings) {
    return findings.length ? listOf(findings, (finding) => this.finding(finding, false), "findings") : null;
  }

  finding(finding, isLinked = true) {
    return el("div", { className: finding.isError ? "finding error" : "finding warning" },
      el("p", {}, el("b", { textContent: finding.code }), ` ${finding.isError ? "error" : "warning"} `, isLinked && finding.node ? this.link(finding.node) : null),
      el("p", { textContent: finding.message }),
      finding.where ? el("p", { className: "note", textContent: finding.where }) : null);
  }

  findings() {
    this.show(...this.data.programs.flatMap((program) => [
      el("h2", { textContent: this.data.programs.length > 1 ? `Findings in ${program.name}` : "Findings" }),
      program.findings.length ? listOf(program.findings, (finding) => this.finding(finding), "findings")
        : el("p", { className: "empty", textContent: "There are none." }),
    ]));
  }

  // ---- changes

  changeOf({ kinds, old, now, mark }) {
    return [
      mark === "~" ? el("p", { className: "note", textContent: kinds }) : null,
      old && old !== now ? el("pre", { className: "removed" }, el("code", { textContent: `- ${old}` })) : null,
      now && old !== now ? el("pre", { className: "added" }, el("code", { textContent: `+ ${now}` })) : null,
    ];
  }

  changes() {
    const { changes, notes, counts } = this.data.diff;
    const words = { "-": "removed", "+": "added", "~": "changed" };
    const others = changes.filter((change) => change.mark === "~" && !change.isChanged).length; // in their names or order
    const told = [...counts].filter(([kind]) => kind !== "same").map(([kind, count]) => `${count.toLocaleString("en")} ${kind}`);
    if (others) told.push(`${others.toLocaleString("en")} renamed or moved`);
    this.show(
      el("h2", { textContent: "Changes" }),
      el("p", { className: "note", textContent: changes.length || notes.length ? told.join(", ") : "The programs are the same." }),
      listOf(changes, (change) => {
        const node = change.after ?? change.before;
        const name = node ? this.link(node) : el("span", { textContent: change.now || change.old });
        return el("span", { className: "row" }, el("span", { className: `mark ${words[change.mark]}`, textContent: change.mark, title: words[change.mark] }), name,
          el("span", { className: "note", textContent: change.mark === "~" ? change.kinds : node?.target ?? "" }));
      }, "changes"),
      notes.length ? section("Signature, ranges and weights", listOf(notes, (note) => el("code", { textContent: note }))) : null,
    );
  }
}

// How often each target is called.
function callsOf(program) {
  const calls = new Map();
  for (const node of program.nodes) if (node.op.startsWith("call_")) calls.set(node.target, (calls.get(node.target) ?? 0) + 1);
  return calls;
}

// Counts by name with bars, the greatest first; beside those of another program where they differ.
function bars(counts, others = counts) {
  const rows = [...new Set([...counts.keys(), ...others.keys()])].map((name) => [name, counts.get(name) ?? 0, others.get(name) ?? 0]);
  rows.sort((a, b) => b[1] - a[1] || b[2] - a[2] || (a[0] < b[0] ? -1 : 1));
  const most = Math.max(rows[0]?.[1] ?? 0, 1);
  return listOf(rows, ([name, count, other]) => {
    const bar = el("span", { className: "bar" });
    bar.style.width = `${Math.min(count / most, 1) * 100}%`;
    const text = [...new Set([count, other])].map((one) => one.toLocaleString("en")).join(" → ");
    return el("span", { className: count === other ? "count" : "count differs" }, bar, el("code", { textContent: name }), el("span", { className: "note", textContent: text }));
  }, "bars");
}
