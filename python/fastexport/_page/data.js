// What _report_data.py wrote, unpacked: programs with their nodes, levels and items.

const REFERENCE = /\x02(\d+)\x02/g;

// The JSON in the page.
async function unpack(text) {
  const bytes = Uint8Array.from(atob(text.trim()), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return JSON.parse(await new Response(stream).text());
}

// Numbers that were written as steps.
function summed(steps) {
  let sum = 0;
  return steps.map((step) => (sum += step));
}

// "name\x1evalue" parts as pairs.
function pairsOf(text) {
  return text === "" ? [] : text.split("\x1f").map((part) => part.split("\x1e"));
}

// The name of an operator as people say it: linear of aten.linear.default.
function shortName(target) {
  const parts = target.split(".");
  if (parts.length > 2 && !["operator", "builtins", "math", "torch"].includes(parts[0])) return parts.at(-2);
  return parts.at(-1);
}

class Program {
  constructor(raw, texts, traces, index) {
    this.index = index;
    this.name = raw.name;
    this.facts = raw.facts.map(([key, text]) => [texts[key], texts[text]]);
    this.scopes = raw.scopes.map(([path, start]) => ({ path: texts[path], start }));
    this.nodes = this.readNodes(raw, texts, traces);
    this.shapes = raw.shapes.map(readShape);
    this.levels = this.readLevels(raw.levels, texts);
    this.root = this.levels[0];
    this.readResults(raw.results, texts);
    const [places, kinds, targets] = raw.weights.map(summed);
    places?.forEach((place, i) => Object.assign(this.nodes[place], { weight: texts[kinds[i]], path: texts[targets[i]] }));
    for (const [place, status] of raw.status) this.nodes[place].status = texts[status];
    this.findings = raw.findings.map(([code, isError, place, message, where]) => ({
      code: texts[code], isError: isError === 1, node: this.nodes[place] ?? null, message: texts[message], where: texts[where],
    }));
    for (const finding of this.findings) finding.node?.findings.push(finding);
  }

  readNodes(raw, texts, traces) {
    const columns = Object.fromEntries(Object.entries(raw.nodes).map(([name, steps]) => [name, summed(steps)]));
    const nodes = columns.name.map((name, index) => {
      const [short, ...more] = texts[columns.value[index]].split("\n");
      return {
        program: this, index, name: texts[name], op: texts[columns.op[index]], target: texts[columns.target[index]],
        shape: short, value: more.join("\n"), args: texts[columns.args[index]], stack: texts[columns.stack[index]],
        meta: texts[columns.meta[index]], trace: traces[columns.trace[index]] ?? null, texts,
        scope: "", users: [], used: [], findings: [], results: [], returned: 0, fates: [], becomes: [], item: null, weight: "", path: "", status: "", change: "", partner: null,
      };
    });
    this.scopes.forEach((scope, i) => {
      for (let at = scope.start; at < (this.scopes[i + 1]?.start ?? nodes.length); at++) nodes[at].scope = scope.path;
    });
    for (const node of nodes) {
      if (!node.args.includes("\x02")) continue;
      node.used = [...new Set(Array.from(node.args.matchAll(REFERENCE), ([, back]) => nodes[node.index - back]))];
      for (const used of node.used) used.users.push(node);
    }
    return nodes;
  }

  // What becomes of the results of each graph: told by its output, by the result, and by the input that it becomes.
  readResults(raw, texts) {
    for (const [place, node, value, fate, target, input, group] of raw) {
      const output = this.nodes[place];
      const result = {
        output, node: this.nodes[node] ?? null, value: texts[value], fate: texts[fate], target: texts[target],
        input: this.nodes[input] ?? null, group: texts[group], number: 0, // among those that are returned
      };
      if (result.group === "out") result.number = ++output.returned;
      output.results.push(result);
      result.node?.fates.push(result);
      result.input?.becomes.push(result);
    }
  }

  readLevels(raw, texts) {
    const levels = raw.map(([shape, path, type], index) => ({
      program: this, index, shape: this.shapes[shape], path: texts[path], type: texts[type],
      parent: null, owner: null, items: [], inputs: [], outputs: [], layout: null, counts: null,
    }));
    let place = 0; // of the node before, which places are told from
    const placed = (item) => {
      if (typeof item === "number") return (place += item);
      return item[0] === 0 ? [0, (place += item[1]), ...item.slice(2)] : item;
    };
    raw.forEach(([, , , parent, inputs, outputs, items], index) => {
      const level = levels[index];
      level.parent = levels[parent] ?? null;
      const end = items.length - outputs;
      level.items = items.map((item, i) => this.readItem(level, i, placed(item), i < inputs ? "input" : i >= end ? "output" : "", levels, texts));
      level.inputs = level.items.slice(0, inputs);
      level.outputs = level.items.slice(end);
    });
    for (const level of levels) level.isPart = level.owner !== null && level.owner.kind !== "node";
    for (const level of levels) {
      for (const item of level.items) {
        const isNode = item.kind === "node" || (item.node && !level.isPart);
        if (isNode) item.node.item = item;
      }
    }
    return levels;
  }

  readItem(level, index, raw, end, levels, texts) {
    const item = {
      level, index, kind: end, node: null, name: "", type: "", text: "", family: "end", members: [], member: 0, size: 1,
      chain: false, module: null, subgraphs: [], open: false, lines: null, box: null,
    };
    if (end) {
      item.node = this.nodes[raw];
      item.name = item.node.name;
      item.text = item.node.shape;
    } else if (raw[0] === 0) {
      const [, place, family, text, module, subgraphs] = raw;
      Object.assign(item, { kind: "node", node: this.nodes[place], family: texts[family], text: texts[text] });
      item.name = item.node.name;
      item.type = item.node.target;
      if (module?.length) item.module = module.map((part) => texts[part]);
      item.subgraphs = (subgraphs ?? []).map(([name, at]) => ({ name: texts[name], level: levels[at] }));
      for (const inner of item.subgraphs) inner.level.owner = item;
    } else {
      const [kind, members, name, type, size, chain] = raw;
      Object.assign(item, { kind: ["", "module", "block", "run"][kind], name: texts[name], type: texts[type], size });
      item.family = "module";
      item.chain = chain === 1;
      item.members = members.map((at) => levels[at]);
      for (const inner of item.members) inner.owner = item;
    }
    return item;
  }

  // A node by its name, in subgraphs after their path.
  find(name) {
    return this.nodes.find((node) => fullName(node) === name) ?? null;
  }
}

function fullName(node) {
  return node.scope ? `${node.scope}/${node.name}` : node.name;
}

// The level inside an item that is shown: of a block the member leafed to.
function innerOf(item) {
  return item.members[item.member] ?? null;
}

function canOpen(item) {
  return item.members.length > 0 || item.subgraphs.length > 0;
}

// All levels in an item, of all members.
function levelsIn(item) {
  return item.members.length ? item.members : item.subgraphs.map((inner) => inner.level);
}

// How many results of each group there are: "5 out, 3 mutations".
function resultsText(results) {
  const count = (group) => results.filter((result) => result.group === group).length;
  const others = ["mutation", "gradient", "token"].filter(count);
  return [`${count("out")} out`, ...others.map((group) => counted(count(group), group))].join(", ");
}

// What becomes of the node of an item in the end, where it is not merely returned.
function fatesOf({ node }) {
  const own = node.fates.filter(({ group }) => group !== "out").map(({ fate, target }) => `${fate} ${target}`.trim());
  const mutations = node.becomes.filter(({ group }) => group === "mutation").map((result) => `becomes ${result.node?.name ?? result.value}`);
  const ends = node.results.some(({ group }) => group !== "out") ? [resultsText(node.results)] : [];
  return [...own, ...mutations, ...ends];
}

// The weights that the node of an item uses.
function weightsOf(item) {
  return item.kind === "node" ? item.node.used.filter((node) => node.weight) : [];
}

// The path of the module that a node is called in.
function moduleOf(node) {
  return pairsOf(node.stack).at(-1)?.[0] ?? "";
}

// Rows of a level: items and the places where edges pass, each with the middle that it should have.
function readShape([ranks, middles, edges]) {
  const rows = [];
  const slots = ranks.map((rank, item) => ({ item, x: middles[item], row: rank }));
  for (const slot of slots) (rows[slot.row] ??= []).push(slot);
  const passing = new Map(); // edges that pass a rank at one place share it
  const routes = edges.map(([source, target, turned, ports, passed]) => ({
    source, target, turned: turned === 1, ports,
    passed: passed.map((x, i) => {
      const row = ranks[source] + 1 + i;
      const key = `${row} ${x} ${source}`;
      if (!passing.has(key)) {
        const slot = { item: -1, x, row };
        passing.set(key, slot);
        (rows[row] ??= []).push(slot);
      }
      return passing.get(key);
    }),
  }));
  const full = Array.from(rows, (row) => row ?? []);
  for (const row of full) row.sort((a, b) => a.x - b.x);
  return { rows: full, slots, routes };
}

// Two programs: which node is which, what has changed, and how many nodes have: of those in both a pair is one.
function readDiff(raw, programs, texts) {
  const [a, b] = programs;
  raw.pairs.forEach((place, index) => {
    if (place < 0) return;
    a.nodes[place].partner = b.nodes[index];
    b.nodes[index].partner = a.nodes[place];
  });
  for (const node of a.nodes) node.change = node.partner ? "same" : "removed";
  for (const node of b.nodes) node.change = node.partner ? "same" : "added";
  const changes = raw.changes.map(([mark, before, after, kinds, old, now]) => ({
    mark, before: a.nodes[before] ?? null, after: b.nodes[after] ?? null,
    kinds: texts[kinds], old: texts[old], now: texts[now],
  }));
  for (const change of changes) {
    change.isChanged = change.mark === "~" && !["name", "order", "name, order"].includes(change.kinds);
    for (const node of [change.before, change.after]) {
      if (node === null) continue;
      node.difference = change;
      if (change.isChanged) node.change = "changed";
    }
  }
  const count = (program, kind) => program.nodes.filter((node) => node.change === kind).length;
  const counts = new Map([["removed", count(a, "removed")], ...["added", "changed", "same"].map((kind) => [kind, count(b, kind)])]);
  return { changes, counts, notes: raw.notes.map((note) => texts[note]) };
}

function readAll(raw) {
  const programs = raw.programs.map((program, i) => new Program(program, raw.texts, raw.traces, i));
  return { programs, colours: raw.colours, diff: raw.diff === null ? null : readDiff(raw.diff, programs, raw.texts) };
}
