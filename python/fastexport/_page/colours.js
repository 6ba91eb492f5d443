// Ways to colour nodes: each tells the category of a node (of), the colours of categories, [fill, line] light and dark,
// and the category of a closed module by those of the nodes in it (whole); undefined: it has a colour of its own.

const PALETTE = {
  blue: ["#e3edff", "#5b8ade", "#1c2c4d", "#5a86d6"],
  orange: ["#ffe8dc", "#df8a5e", "#46291b", "#c07a52"],
  green: ["#e0f5e4", "#4fae62", "#173a21", "#4ea863"],
  yellow: ["#fff3c9", "#d1a62a", "#3d3312", "#b8952f"],
  violet: ["#f1eafe", "#9a7ee0", "#2c2248", "#8a6fd0"],
  teal: ["#dcf5f4", "#3fa8a3", "#123735", "#3f9f9a"],
  pink: ["#fde7f0", "#d7709b", "#421e2d", "#c0648b"],
  red: ["#fee6e4", "#dc5b52", "#481d1b", "#e0685f"],
  grey: ["#ffffff", "#b6bcc6", "#22262e", "#4a515e"],
  dim: ["#f6f7f9", "#d4d8df", "#1b1e24", "#343943"],
};
const PLAIN = PALETTE.grey;
const IN_TURN = ["blue", "orange", "green", "violet", "teal", "pink", "yellow", "red"];
const FAMILIES = {
  math: "elementwise", matrix: "matrices", activation: "activation", norm: "norm, dropout", shape: "shape",
  quantize: "quantize", check: "check",
};
const DTYPES = {
  f32: "blue", f16: "teal", bf16: "green", f64: "violet", i64: "orange", i32: "yellow", i8: "pink", u8: "pink", b8: "red",
};
const STATUSES = {
  quantized: "green", partly: "yellow", "weight only": "teal", float: "red", quantize: "violet", dequantize: "pink",
};
const CHANGES = { added: "green", removed: "red", changed: "yellow", same: "dim" };
const FINDINGS = { error: "red", warning: "yellow" };

function coloursFrom(table) {
  return (category) => PALETTE[table[category]] ?? PLAIN;
}

// The ways that say something of these programs.
function coloursFor({ programs, diff, colours }) {
  const nodes = programs.flatMap((program) => program.nodes);
  const dtypes = [...new Set(nodes.map(dtypeOf))].filter((dtype) => dtype).sort();
  const free = IN_TURN.filter((name) => !dtypes.some((dtype) => DTYPES[dtype] === name));
  const table = Object.fromEntries(dtypes.map((dtype, i) => [dtype, DTYPES[dtype] ?? free[i % free.length] ?? "blue"]));
  const ways = [
    { name: "operator", of: (node) => FAMILIES[node.item?.family] ?? "", colours: coloursOfFamilies(colours), whole: () => undefined },
    { name: "dtype", of: dtypeOf, colours: coloursFrom(table), whole: theOnly },
  ];
  if (nodes.some((node) => node.status)) {
    ways.push({ name: "quantized", of: (node) => node.status, colours: coloursFrom(STATUSES), whole: theOnly });
  }
  if (programs.some((program) => program.findings.length)) {
    ways.push({ name: "findings", of: findingOf, colours: coloursFrom(FINDINGS), whole: (all) => ["error", "warning"].find((one) => all.includes(one)) });
  }
  if (diff) ways.push({ name: "changes", of: (node) => node.change, colours: coloursFrom(CHANGES), whole: (all) => theOnly(all) ?? "changed" });
  ways.push({ name: "none", of: () => "", colours: () => PLAIN, whole: () => undefined });
  return ways;
}

function theOnly(categories) {
  return categories.length === 1 ? categories[0] : undefined;
}

function coloursOfFamilies(colours) {
  const names = new Map(Object.entries(FAMILIES).map(([family, name]) => [name, family]));
  return (category) => colours[names.get(category)] ?? PLAIN;
}

function dtypeOf(node) {
  return /^([a-z]+\d*(?:_?[a-z0-9]+)*)\[/.exec(node.shape)?.[1] ?? "";
}

function findingOf(node) {
  if (!node.findings.length) return "";
  return node.findings.some((finding) => finding.isError) ? "error" : "warning";
}

// How many nodes of each category are in a level and below; kept until the way changes.
function countsOf(level, way) {
  if (level.counts?.way === way) return level.counts.map;
  const map = new Map();
  for (const item of level.items) {
    for (const [category, count] of countsOfItem(item, way)) map.set(category, (map.get(category) ?? 0) + count);
  }
  level.counts = { way, map };
  return map;
}

function countsOfItem(item, way) {
  const map = new Map();
  if (item.kind === "node") map.set(way.of(item.node), 1);
  for (const level of levelsIn(item)) {
    for (const [category, count] of countsOf(level, way)) map.set(category, (map.get(category) ?? 0) + count);
  }
  return map;
}

// What is wrong in an item: the number of findings, and whether one is an error.
function findingsIn(item) {
  if (item.wrong === undefined) {
    item.wrong = { count: 0, isError: false };
    const add = ({ count, isError }) => {
      item.wrong.count += count;
      item.wrong.isError ||= isError;
    };
    if (item.node && (item.kind === "node" || !item.level.isPart)) {
      add({ count: item.node.findings.length, isError: item.node.findings.some((finding) => finding.isError) });
    }
    for (const level of levelsIn(item)) level.items.forEach((inner) => add(findingsIn(inner)));
  }
  return item.wrong;
}
